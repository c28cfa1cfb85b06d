"""What all parts of a report have in common."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Missable = Annotated[float | None, BeforeValidator(_finite)]
"""A number that may be missing; JSON has no infinity, so what is not finite counts as missing."""


class Part(BaseModel):
    """A part of a report: nothing that is not listed, and nothing that changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
