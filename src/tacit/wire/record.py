"""What is written down of a run, so that attacks can be tried on it: in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
        clean_layers: what that gradient would have brought to each watched layer, in the shape of `view.own`.
    """

    view: View
    clean: Tensor
    clean_layers: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def cleans(self) -> dict[str, Tensor]:
        """All clean gradients by layer, "cut" among them: what `attack_all` takes as `clean`."""
        return {"cut": self.clean, **self.clean_layers}


@dataclass(frozen=True)
class _Step:
    rows: Tensor
    embedding: Tensor
    own_embedding: Tensor
    gradient: Tensor
    clean: Tensor
    layers: Mapping[str, Tensor]
    clean_layers: Mapping[str, Tensor]

    def select(self, places: Tensor) -> _Step:
        layers, clean_layers = (
            {name: layer.index_select(0, places) for name, layer in each.items()}
            for each in (self.layers, self.clean_layers)
        )
        embedding, gradient = self.embedding.index_select(0, places), self.gradient.index_select(0, places)
        own = embedding if self.own_embedding is self.embedding else self.own_embedding.index_select(0, places)
        clean = gradient if self.clean is self.gradient else self.clean.index_select(0, places)
        return _Step(self.rows.index_select(0, places), embedding, own, gradient, clean, layers, clean_layers)


class Recorder:
    """Keeps the last batches whole, and every visit of a few examples.

    Args:
        last: how many batches to keep; older ones are forgotten.
        follow: of how many examples to keep every visit, for accumulated attacks.
        chosen: the ids of these examples; those with the smallest ids, where nobody is to be kept from knowing them.
    """

    def __init__(self, *, last: int = 32, follow: int = 0, chosen: Tensor | None = None) -> None:
        for name, value in (("last", last), ("follow", follow)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError(f"Recorder({name}={value!r}): {name} is a count, pass a whole number, 0 or more")
        if last < 0 or follow < 0 or last + follow == 0:
            raise UsageError(f"Recorder(last={last}, follow={follow}) would keep nothing: set one of them above 0")
        self.follow = follow
        self._chosen = None if chosen is None else chosen.sort().values
        self._last: deque[_Step] = deque(maxlen=last)
        self._followed: list[_Step] = []

    def write(
        self,
        *,
        rows: Tensor,
        embedding: Tensor,
        gradient: Tensor,
        clean: Tensor,
        layers: Mapping[str, Tensor],
        clean_layers: Mapping[str, Tensor] | None = None,
        own_embedding: Tensor | None = None,
        keep: bool = True,
    ) -> None:
        """Write one step down.

        Args:
            rows: of the batch.
            embedding: that was sent.
            gradient: that came back.
            clean: the same before it was protected.
            layers: gradients at other layers, by name.
            clean_layers: the same before protection.
            own_embedding: the embedding before its party protected it, where that is known.
            keep: whether the batch is one to be kept whole; followed examples are followed in any case.
        """
        sent = embedding.detach()
        own = sent if own_embedding is None else own_embedding.detach()
        step = _Step(rows, sent, own, gradient, clean, layers, clean_layers or {})
        if self._last.maxlen and keep:
            self._last.append(step)
        if self.follow:
            places = self._followed_in(rows).nonzero().squeeze(1)
            if len(places):
                self._followed.append(step.select(places))

    def _followed_in(self, rows: Tensor) -> Tensor:
        """Which of these rows are followed.  (batch,)"""
        if self._chosen is None:
            return rows < self.follow
        place = torch.searchsorted(self._chosen, rows).clamp(max=len(self._chosen) - 1)
        return self._chosen[place] == rows

    @property
    def recorded(self) -> bool:
        """Whether any batch was kept whole."""
        return bool(self._last)

    @property
    def visited(self) -> bool:
        """Whether any followed example was visited."""
        return bool(self._visited())

    def batches(self) -> Transcript:
        """The last batches, oldest first."""
        if not self._last:
            raise UsageError("no batch was recorded: give the recorder last= above 0 and train at least one step")
        return _transcript(list(self._last))

    def visits(self) -> Transcript:
        """Every visit of the followed examples: one step of the view for each visit, all with the same rows.

        Examples that were visited less often than the most visited one (they sat an epoch out) are left out.
        """
        steps = self._visited()
        if not steps:
            raise UsageError("no example was followed: give the recorder follow= above 0 and train at least one step")
        joined = _cat(steps)
        order = torch.argsort(joined.rows, stable=True)  # by example, and by time within an example
        _, counts = torch.unique_consecutive(joined.rows[order], return_counts=True)
        visits = int(counts.max())
        starts = (counts.cumsum(0) - counts)[counts == visits]
        places = order[starts[None, :] + torch.arange(visits, device=order.device)[:, None]]  # (visits, examples)
        return _transcript([joined.select(place) for place in places])

    def _visited(self) -> list[_Step]:
        """What was kept of the followed examples, oldest first."""
        return self._followed


def _cat(steps: list[_Step]) -> _Step:
    """The rows of all steps as those of one; what was one tensor in each of them is one tensor again."""
    embedding = torch.cat([step.embedding for step in steps])
    gradient = torch.cat([step.gradient for step in steps])
    unprotected = any(step.own_embedding is not step.embedding for step in steps)
    cleaner = any(step.clean is not step.gradient for step in steps)
    return _Step(
        torch.cat([step.rows for step in steps]),
        embedding,
        torch.cat([step.own_embedding for step in steps]) if unprotected else embedding,
        gradient,
        torch.cat([step.clean for step in steps]) if cleaner else gradient,
        _joined(torch.cat, [step.layers for step in steps]),
        _joined(torch.cat, [step.clean_layers for step in steps]),
    )


def _joined(join: Callable[[list[Tensor]], Tensor], steps: list[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The layers of all steps, joined by name."""
    return {name: join([step[name] for step in steps]) for name in steps[0]}


def _transcript(steps: list[_Step]) -> Transcript:
    view = View.of(
        torch.stack([step.gradient for step in steps]),
        rows=torch.stack([step.rows for step in steps]),
        embedding=torch.stack([step.embedding for step in steps]),
        own_embedding=torch.stack([step.own_embedding for step in steps]),
        layers=_joined(torch.stack, [step.layers for step in steps]),
    )
    clean = torch.stack([step.clean for step in steps]).flatten(start_dim=2)
    return Transcript(view, clean, _joined(torch.stack, [step.clean_layers for step in steps]))
