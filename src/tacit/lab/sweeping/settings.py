"""What one replica of a sweep is: a protection at one strength, and a seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tacit.contracts import Protection
from tacit.protect.gradient import protection

Option = float | int | str | bool | None
"""What an option of a protection may be."""


@dataclass(frozen=True)
class Setting:
    """One replica: what its label party does, and where its randomness starts."""

    protection: str  # a gradient protection's name, or "randomized_response"
    knob: str | None = None  # the option that is its strength; None where it has none, as for `none` and `max_norm`
    strength: float | None = None  # the value of that option; None where it has none
    others: tuple[tuple[str, Option], ...] = ()  # its other options, as pairs of name and value
    seed: int = 0  # of first weights, batches and noise

    @property
    def options(self) -> Mapping[str, Option]:
        """All options of the protection, the strength among them."""
        knob = {} if self.knob is None else {self.knob: self.strength}
        return {**knob, **dict(self.others)}

    @property
    def spelled(self) -> str:
        """As it would be written in code, for tables and legends.

        >>> Setting("marvell", "scale", 4.0).spelled
        'marvell(scale=4)'
        """
        shown = (
            f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in self.options.items()
        )
        return f"{self.protection}({', '.join(shown)})" if self.options else self.protection

    @property
    def options_json(self) -> str:
        """The options as they stand in a results file."""
        return json.dumps(dict(self.options), sort_keys=True)

    @property
    def flips(self) -> bool:
        """Whether it acts on the labels before the loss and not on gradients."""
        return self.protection == "randomized_response"

    def build(self) -> Protection:
        """The gradient protection; `none` where labels are flipped instead."""
        return protection("none") if self.flips else protection(self.protection, **dict(self.options))
