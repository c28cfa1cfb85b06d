"""What the gates of the two sides measure: the label party's in its gradients, a feature party's in its embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from tacit.align.batches import Task
from tacit.audit import foresight
from tacit.audit.foresight import Sent
from tacit.audit.gate import Figure, Verdict, grown
from tacit.audit.inputs import attack_inputs, mean_visits
from tacit.contracts import View, noise_source
from tacit.errors import UsageError
from tacit.split.evenly import alternating, evenly
from tacit.split.feature_party import FeatureParty
from tacit.split.gate import Gate
from tacit.split.label_party import LabelParty
from tacit.split.protect.facts import bound_for, described

_BATCHES = 12  # recorded batches that are protected anew


class GradientGate(Gate):
    """The label party's: leak AUC of its labels, in the gradients that it sends.

    Whether it pauses is an answer about the labels of the aligned rows. So it decides before the first gradient and
    between two epochs, and nowhere else; and at a time that does not hang on them: see `evenly`.
    """

    def __init__(self, party: LabelParty, followed: Tensor, **common: Any) -> None:
        super().__init__(**common)
        if party.classes > 2:
            raise UsageError("a limit on leak AUC needs labels of two classes: remove limit from party.toml")
        self.party = party
        self.labels = party.labels[: self.plan.train_count].cpu()  # as what is recorded
        # of one class alone nothing can be measured: without a bound for a row the run pauses before its first gradient
        self.blind = len(self.labels[followed].unique()) < 2

    def _verdict(self, task: Task, batch: Sequence[Tensor], limit: float) -> Verdict:
        clean, z, labels = batch
        rehearsed = self._rehearsal()
        return evenly(
            lambda: Gate._verdict(rehearsed, task, (clean, z, alternating(labels)), limit),
            lambda: super(GradientGate, self)._verdict(task, batch, limit),
        )

    def looked(self, turn: int) -> list[Figure]:
        """What the quick attacks reach on what was sent before a turn."""
        rehearsed = self._rehearsal()
        return evenly(lambda: rehearsed.look(turn), lambda: self.seen(turn))

    def _rehearsal(self) -> GradientGate:
        """The same with other labels, of which both classes are there."""
        other = copy(self)
        other.labels, other.blind, other._seen = alternating(self.labels), False, (-1, [])
        return other

    def point(self, task: Task) -> int:
        """The turn with which the task's epoch begins."""
        return task.turn - task.turn % self.plan.epoch_turns

    def bounded(self) -> bool:
        """Whether the protection has a bound for a row."""
        return bool(self._bound())

    def strength(self) -> str:
        """The protection in one line."""
        return described(self.party.protect)

    def look(self, seed: int) -> list[Figure]:
        """The quick attacks on the batches that were kept, and on all visits so far."""
        found = foresight.on_batches(self._last(), self.labels, seed=seed) if self.kept.recorded else []
        if self.kept.visited:
            found += foresight.on_visits(self._visits(), self.labels, seed=seed)
        return [] if self.blind else found

    def foreseen(self, task: Task) -> list[Figure]:
        """The same with the visits to come; and what is certain of a row at the end, whatever attacks could be tried.

        Visits to come are foreseen in two ways, and the higher figure counts: tried out on the last clean gradients, as
        if these did not change any more; and by what the visits so far have told, as if each one to come told as much.
        """
        bound, protect, seed = self._bound(), self.party.protect, task.turn
        noise, found = torch.Generator().manual_seed(seed), list[Figure]()
        if self.kept.recorded:
            some = self._last(_BATCHES).under(protect, self.party.state, self.labels, noise)
            found += foresight.on_batches(some, self.labels, seed=seed)
        if self.kept.visited:
            visits = self._visits()
            so_far, planned = len(visits.view.rows), self.plan.epochs
            more = visits.again(
                protect, self.party.state, self.labels, noise, times=planned - so_far, batch=self.plan.batch_size
            )
            found += foresight.on_visits(more, self.labels, seed=seed)
            if found:
                found += grown(self.seen(seed), so_far, planned)
        return bound if self.blind else found + bound

    def tried_out(self, *batch: Tensor) -> list[Figure]:
        """As many visits of a batch as are planned, from a fresh state."""
        clean, z, labels = batch[0].flatten(1), batch[1].flatten(1), batch[2]
        protect = self.party.protect
        state = getattr(protect, "fresh", protect.init)()
        noise = torch.Generator().manual_seed(0)
        rows = torch.arange(len(labels))[None]
        first = protect.update(clean, labels, state, noise, z).value
        once = Sent(View.of(first[None], rows=rows, embedding=z[None]), clean[None], z[None])
        visits = once.again(protect, state, labels, noise, times=self.plan.epochs - 1, batch=len(labels))
        found = foresight.on_batches(visits, labels, seed=0) + foresight.on_visits(visits, labels, seed=0)
        return self._bound() if self.blind else found + self._bound()

    def _bound(self) -> list[Figure]:
        """What the protection promises of any row over all visits; without a promise measurements alone count."""
        value = bound_for(self.party.protect, self.plan.epochs)
        return [] if value is None else [Figure("the promise for a row", "visits", value, 0.5, value, bound=value)]

    def _last(self, count: int = 0) -> Sent:
        """So many of the batches that were kept, the last ones; all where no number is given."""
        transcript = self.kept.batches()
        view, z = transcript.view, transcript.view.embedding[-count:]
        return Sent(View.of(view.gradient[-count:], rows=view.rows[-count:], embedding=z), transcript.clean[-count:], z)

    def _visits(self) -> Sent:
        transcript = self.kept.visits()
        return Sent(transcript.view, transcript.clean, transcript.view.embedding)


class EmbeddingGate(Gate):
    """A feature party's: the share of its columns' variance that can be read in the embeddings that it sends."""

    def __init__(self, party: FeatureParty, **common: Any) -> None:
        super().__init__(**common)
        self.party = party

    def strength(self) -> str:
        """The protections in one line."""
        return described(self.party.shield.protect)

    def look(self, seed: int) -> list[Figure]:
        """A decoder that knows half of the rows, on the batches that were kept and on the mean of all visits."""
        found = self._read(self.kept.batches().view, "batches", seed) if self.kept.recorded else []
        if not self.kept.visited:
            return found
        return found + self._read(mean_visits(self.kept.visits().view), "visits", seed)

    def foreseen(self, task: Task) -> list[Figure]:
        """The same with the visits to come."""
        seed = task.turn
        noise, found = torch.Generator().manual_seed(seed), list[Figure]()
        if self.kept.recorded:
            batches = self.kept.batches().view
            sent = torch.stack([self._passed(z, noise) for z in batches.own_embedding[-_BATCHES:]])
            found += self._read(View.of_embeddings(sent, rows=batches.rows[-_BATCHES:]), "batches", seed)
        if not self.kept.visited:
            return found
        visits = self.kept.visits().view
        last = visits.own_embedding[-1]
        more = [self._passed(last, noise) for _ in range(self.plan.epochs - len(visits.rows))]
        every = torch.cat([visits.embedding, torch.stack(more)]) if more else visits.embedding
        together = View.of_embeddings(every, rows=visits.rows[-1].expand(len(every), -1))
        return found + self._read(mean_visits(together), "visits", seed)

    def tried_out(self, *batch: Tensor) -> list[Figure]:
        """The mean of as many visits of the first batch as are planned."""
        rows, z = batch[0], batch[1].cpu()
        noise = torch.Generator().manual_seed(0)
        visits = torch.stack([self._passed(z.flatten(1), noise) for _ in range(self.plan.epochs)])
        together = View.of_embeddings(visits, rows=rows.expand(len(visits), -1))
        return self._read(mean_visits(together), "visits", 0)

    def _passed(self, z: Tensor, noise: torch.Generator) -> Tensor:
        source = noise_source(noise)
        for protection in self.party.shield.protect:
            z = protection.transform(z, source)
        return z

    def _read(self, view: View, on: Any, seed: int) -> list[Figure]:
        rows, places = view.rows.unique(return_inverse=True)
        hidden = torch.cat([self.party.hidden(some).cpu() for some in rows.split(8192)])
        seen = View.of_embeddings(view.embedding, rows=places)
        noise, skipped = torch.Generator().manual_seed(seed), dict[str, str]()  # a few rows are too few for a decoder
        found = attack_inputs(seen, hidden, ["linear_decoder"], noise=noise, skipped=skipped)
        read = [(one.attack, one.relative) for one in found if one.relative is not None]
        return [Figure(name, on, 1 - error.value, 1 - error.high, 1 - error.low) for name, error in read]
