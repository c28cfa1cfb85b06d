"""Several protections, one after the other."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.contracts import Event, Noise, Protected, Protection
from tacit.errors import UsageError
from tacit.split.protect.gradient._base import GradientProtection, Strength, checked


@dataclass(frozen=True)
class Chain:
    """See `chain`."""

    links: tuple[Protection, ...]

    @property
    def name(self) -> str:
        """The names of the links, in order."""
        return " + ".join(str(getattr(link, "name", type(link).__name__)) for link in self.links)

    @property
    def event(self) -> Event:
        """What it does, link by link; one that does not say it goes by its name."""
        told = [getattr(link, "event", Event(str(getattr(link, "name", type(link).__name__)))) for link in self.links]
        return Event("chain", parts=tuple(told))

    @property
    def row_kl(self) -> Strength | None:
        """What a visit leaves of a row: the last link's word, because one after it may depend on labels again."""
        return getattr(self.links[-1], "row_kl", None)

    @property
    def visits(self) -> int | None:
        """For how many visits the last link plans; None where it plans for none."""
        return getattr(self.links[-1], "visits", None)

    def init(self) -> tuple[Any, ...]:
        """Every link's own state."""
        return tuple(link.init() for link in self.links)

    def fresh(self) -> tuple[Any, ...]:
        """Every link's own state for a batch on its own."""
        return tuple(getattr(link, "fresh", link.init)() for link in self.links)

    def update(
        self, grad: Tensor, labels: Tensor, state: Any, noise: Noise, embedding: Tensor | None = None
    ) -> Protected:
        """Each link protects what the one before it returned.

        Its report is the last link's, with the power that all links spent and the rows that none of them touched.
        Powers add up because the noise of one link has mean zero whatever the link before it returned; a `clip` that
        is not the first link takes some of it away again. Untouched rows are at most as many as the best link left.
        """
        done: list[Protected] = []
        for link, part in zip(self.links, state, strict=True):
            done.append(link.update(done[-1].value if done else grad, labels, part, noise, embedding))
        untouched = torch.stack([part.report["untouched_rows"] for part in done]).amin(0)
        power = torch.stack([part.report["power"] for part in done]).sum(0)
        valid = [part.report["valid"] for part in done if "valid" in part.report]
        sound = torch.stack(valid).all(0) if valid else torch.ones_like(untouched, dtype=torch.bool)
        return replace(
            done[-1],
            state=tuple(part.state for part in done),
            event=Event("chain", parts=tuple(part.event for part in done)),
            report={**done[-1].report, "power": power, "untouched_rows": untouched, "valid": sound},
        )

    def __call__(self, grad: Tensor, labels: Tensor, noise: Noise, embedding: Tensor | None = None) -> Protected:
        """The same for one batch on its own; bad input raises on every device."""
        return checked(self.update(grad, labels, self.fresh(), noise, embedding), grad, labels)

    def form(self, state: tuple[Any, ...]) -> tuple[Hashable, ...] | None:
        """That of every link; None where one has none, or can't tell."""
        told = tuple(
            link.form(part) if isinstance(link, GradientProtection | Chain) else None
            for link, part in zip(self.links, state, strict=True)
        )
        return None if None in told else told

    def advanced(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """Every link's own state a step later."""
        return tuple(
            link.advanced(part) if isinstance(link, GradientProtection | Chain) else part
            for link, part in zip(self.links, state, strict=True)
        )


def chain(*links: Protection) -> Protection:
    """Protections one after the other: `chain(clip(0.1), marvell(leak_auc=0.6))`."""
    if not links:
        raise UsageError("chain() needs at least one protection; for no protection say none()")
    wrong = next((link for link in links if not (callable(link) and hasattr(link, "update"))), None)
    if wrong is not None:
        raise UsageError(f"chain() takes protections, not {wrong!r}: call the factory first, as in marvell(scale=4.0)")
    return Chain(tuple(links))
