"""A feature party's gate: the share of its columns' variance that can be read in the embeddings that it sends."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tacit.align.batches import Task
from tacit.audit.gate import Figure
from tacit.audit.inputs import attack_inputs, mean_visits
from tacit.company.gate import BATCHES, Gate
from tacit.contracts import EmbeddingProtection, View, noise_source
from tacit.cut.feature_party import FeatureParty
from tacit.protect import ladder


class EmbeddingGate(Gate):
    """A feature party's: the share of its columns' variance that can be read in the embeddings that it sends."""

    def __init__(self, party: FeatureParty, **common: Any) -> None:
        super().__init__(**common)
        self.party = party
        self.base = party.shield.protect

    def at(self, level: int) -> list[EmbeddingProtection] | None:
        """The protections as they are at a level."""
        return ladder.stronger_embedding(self.base, level)

    def apply(self, level: int) -> None:
        """Protect at this level."""
        self.party.shield.steer(self._protections(level))

    def look(self, seed: int) -> list[Figure]:
        """A decoder that knows half of the rows, on the batches that were kept and on the mean of all visits."""
        assert self.recorder is not None  # there is no limit without
        found = self._read(self.recorder.batches().view, "batches", seed) if self.recorder.recorded else []
        if not self.recorder.visited:
            return found
        return found + self._read(mean_visits(self.recorder.visits().view), "visits", seed)

    def foreseen(self, level: int, task: Task) -> list[Figure]:
        """The same under another strength, with the visits to come."""
        seed = task.turn
        noise, found = torch.Generator().manual_seed(1000 * seed + level), list[Figure]()
        assert self.recorder is not None
        if self.recorder.recorded:
            batches = self.recorder.batches().view
            sent = torch.stack([self._passed(z, level, noise) for z in batches.own_embedding[-BATCHES:]])
            found += self._read(View.of_embeddings(sent, rows=batches.rows[-BATCHES:]), "batches", seed)
        if not self.recorder.visited:
            return found
        visits = self.recorder.visits().view
        last = visits.own_embedding[-1]
        more = [self._passed(last, level, noise) for _ in range(self.plan.epochs - len(visits.rows))]
        every = torch.cat([visits.embedding, torch.stack(more)]) if more else visits.embedding
        together = View.of_embeddings(every, rows=visits.rows[-1].expand(len(every), -1))
        return found + self._read(mean_visits(together), "visits", seed)

    def tried_out(self, level: int, *batch: Tensor) -> list[Figure]:
        """The mean of as many visits of the first batch as are planned."""
        rows, z = batch
        noise = torch.Generator().manual_seed(level)
        visits = torch.stack([self._passed(z.flatten(1), level, noise) for _ in range(self.plan.epochs)])
        together = View.of_embeddings(visits, rows=rows.expand(len(visits), -1))
        return self._read(mean_visits(together), "visits", 0)

    def _protections(self, level: int) -> list[EmbeddingProtection]:
        protections = self.at(level)
        assert protections is not None  # a level above 0 is only tried where there is one
        return protections

    def _passed(self, z: Tensor, level: int, noise: torch.Generator) -> Tensor:
        source = noise_source(noise)
        for protection in self._protections(level):
            z = protection.transform(z, source)
        return z

    def _read(self, view: View, on: Any, seed: int) -> list[Figure]:
        rows, places = view.rows.unique(return_inverse=True)
        hidden = torch.cat([self.party.hidden(some) for some in rows.split(8192)])
        seen = View.of_embeddings(view.embedding, rows=places)
        noise, skipped = torch.Generator().manual_seed(seed), dict[str, str]()  # a few rows are too few for a decoder
        found = attack_inputs(seen, hidden, ["linear_decoder"], noise=noise, skipped=skipped)
        read = [(one.attack, one.relative) for one in found if one.relative is not None]
        return [Figure(name, on, 1 - error.value, 1 - error.high, 1 - error.low) for name, error in read]
