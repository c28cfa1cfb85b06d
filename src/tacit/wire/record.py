"""What is written down of a run, so that attacks can be tried on it: in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.contracts import View
from tacit.errors import UsageError

__all__ = ["Recorder", "Transcript"]


@dataclass(frozen=True)
class Transcript:
    """A view of a run, and beside it what only an evaluator may know.

    Attributes:
        view: the feature party's view.
        clean: the gradient before it was protected, in the shape of `view.gradient`: for oracles and for figures.
    """

    view: View
    clean: Tensor


@dataclass(frozen=True)
class _Step:
    rows: Tensor
    embedding: Tensor
    gradient: Tensor
    clean: Tensor
    layers: Mapping[str, Tensor]

    def select(self, places: Tensor) -> _Step:
        layers = {name: layer[places] for name, layer in self.layers.items()}
        return _Step(self.rows[places], self.embedding[places], self.gradient[places], self.clean[places], layers)


class Recorder:
    """Keeps the last batches whole, and every visit of a few examples.

    Args:
        last: how many batches to keep; older ones are forgotten.
        follow: of how many examples (those with the smallest ids) to keep every visit, for accumulated attacks.
    """

    def __init__(self, *, last: int = 32, follow: int = 0) -> None:
        if last < 0 or follow < 0 or last + follow == 0:
            raise UsageError(f"Recorder(last={last}, follow={follow}) would keep nothing: set one of them above 0")
        self.follow = follow
        self._last: deque[_Step] = deque(maxlen=last)
        self._followed: list[_Step] = []

    def write(
        self, *, rows: Tensor, embedding: Tensor, gradient: Tensor, clean: Tensor, layers: Mapping[str, Tensor]
    ) -> None:
        """Write one step down."""
        step = _Step(rows, embedding.detach(), gradient, clean, layers)
        if self._last.maxlen:
            self._last.append(step)
        if self.follow:
            places = (rows < self.follow).nonzero().squeeze(1)
            if len(places):
                self._followed.append(step.select(places))

    def batches(self) -> Transcript:
        """The last batches, oldest first."""
        if not self._last:
            raise UsageError("no batch was recorded: give the recorder last= above 0 and train at least one step")
        return _transcript(list(self._last))

    def visits(self) -> Transcript:
        """Every visit of the followed examples: one step of the view for each visit, all with the same rows.

        Examples that were visited less often than the most visited one (they sat an epoch out) are left out.
        """
        if not self._followed:
            raise UsageError("no example was followed: give the recorder follow= above 0 and train at least one step")
        rows = torch.cat([step.rows for step in self._followed])
        order = torch.argsort(rows, stable=True)  # by example, and by time within an example
        _, counts = torch.unique_consecutive(rows[order], return_counts=True)
        visits = int(counts.max())
        starts = (counts.cumsum(0) - counts)[counts == visits]
        places = order[starts[None, :] + torch.arange(visits, device=rows.device)[:, None]]  # (visits, examples)
        names = self._followed[0].layers
        joined = _Step(
            rows,
            torch.cat([step.embedding for step in self._followed]),
            torch.cat([step.gradient for step in self._followed]),
            torch.cat([step.clean for step in self._followed]),
            {name: torch.cat([step.layers[name] for step in self._followed]) for name in names},
        )
        return _transcript([joined.select(place) for place in places])


def _transcript(steps: list[_Step]) -> Transcript:
    layers = {name: torch.stack([step.layers[name] for step in steps]) for name in steps[0].layers}
    view = View.of(
        torch.stack([step.gradient for step in steps]),
        rows=torch.stack([step.rows for step in steps]),
        embedding=torch.stack([step.embedding for step in steps]),
        layers=layers,
    )
    return Transcript(view, torch.stack([step.clean for step in steps]).flatten(start_dim=2))
