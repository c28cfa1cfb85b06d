"""What a stack keeps for attacks that need more than one batch: the last batches, and every visit of a few examples."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.align.batches import shuffled
from tacit.contracts import View
from tacit.errors import UsageError
from tacit.split.record import Transcript


@dataclass(frozen=True)
class Batch:
    """One recorded batch of all replicas, with the replicas in front."""

    rows: Tensor
    embedding: Tensor
    sent: Tensor
    clean: Tensor


@dataclass(frozen=True)
class Replica:
    """What was kept of one replica, on the device that it trained on."""

    recording: Recording
    replica: int

    def batches(self) -> Transcript:
        """The last batches, oldest first."""
        kept = list(self.recording.batches)
        if not kept:
            raise UsageError("no batch was recorded: give the stack last= above 0 and train at least one step")
        rows, embedding, sent, clean = (
            torch.stack([getattr(batch, name)[self.replica] for batch in kept])
            for name in ("rows", "embedding", "sent", "clean")
        )
        return Transcript(View.of(sent, rows=rows, embedding=embedding), clean.flatten(start_dim=2))

    def visits(self) -> Transcript:
        """Every visit of the followed examples; those that were visited less often than the others are left out."""
        seen = self.recording.seen
        if seen is None:
            raise UsageError("no example was followed: give the stack follow= and visits= and train at least one step")
        times = self.recording.times[self.recording.seed_of[self.replica]]  # (follow,)
        most = int(times.max())
        full = (times == most).nonzero().squeeze(1)
        here = seen[:, self.replica, :-1].unflatten(1, (self.recording.visits, self.recording.follow))
        sent, clean = here[:, :most, full.to(here.device)]  # (visits, examples, width) each
        rows = self.recording.rows[full].to(here.device)
        return Transcript(View.of(sent, rows=rows.expand(most, -1).contiguous()), clean)


class Recording:
    """Buffers of fixed size, so that a captured graph can fill them.

    Kept are the `last` batches, and of `follow` examples, drawn from all rows (files are often sorted, by day or by
    label), so many `visits` of each; `seed_of` has for each replica the number of its seed, whose batches it trains on.
    """

    def __init__(self, seed_of: Sequence[int], count: int, *, last: int, follow: int, visits: int) -> None:
        if min(last, follow, visits) < 0 or (follow > 0) != (visits > 0):
            raise UsageError(f"last={last}, follow={follow}, visits={visits}: counts, the last two given together")
        self.seed_of, self.last, self.follow, self.visits = tuple(seed_of), last, min(follow, count), visits
        self.rows = shuffled(count, 0, self.follow, key="followed").sort().values  # the same whatever trains
        self.batches: deque[Batch] = deque(maxlen=last or 1)
        self.seen: Tensor | None = None  # (2 sent|clean, replicas, visits * follow + 1, width)
        self.times = torch.zeros(0, self.follow, dtype=torch.int64)  # visits so far, for each seed
        self.now: Batch | None = None  # the batch that was seen last

    def slots(self, plan: Tensor) -> Tensor:
        """For each row of a plan the place of this visit, or the last place, which is not read.

        (seeds, steps, batch) -> the same
        """
        trash = self.visits * self.follow
        slots = torch.full_like(plan, trash)
        if not self.follow:
            return slots
        if not len(self.times):
            self.times = torch.zeros(len(plan), self.follow, dtype=torch.int64)
        number = torch.searchsorted(self.rows, plan.contiguous()).clamp_(max=self.follow - 1)  # the example, if any
        for seed, step, place in (self.rows[number] == plan).nonzero().tolist():
            example = int(number[seed, step, place])
            if self.times[seed, example] < self.visits:
                slots[seed, step, place] = int(self.times[seed, example]) * self.follow + example
                self.times[seed, example] += 1
        return slots

    def see(self, rows: Tensor, slots: Tensor, embedding: Tensor, sent: Tensor, clean: Tensor) -> None:
        """One batch of all replicas; inside a captured graph, where these tensors will be filled again and again."""
        self.now = Batch(rows, embedding, sent, clean)
        if self.follow:
            if self.seen is None:
                shape = (2, len(self.seed_of), self.visits * self.follow + 1, sent[0, 0].numel())
                self.seen = torch.zeros(shape, dtype=sent.dtype, device=sent.device)
            replica = torch.arange(len(self.seed_of), device=sent.device)[:, None]
            for buffer, value in zip(self.seen, (sent, clean), strict=True):
                buffer[replica, slots] = value.flatten(2)

    def keep_last(self) -> None:
        """Keep the batch that was seen last."""
        if self.now is not None:
            now = self.now
            if now.sent.is_cuda:  # the graph will write over them
                now = Batch(now.rows.clone(), now.embedding.clone(), now.sent.clone(), now.clean.clone())
            self.batches.append(now)
