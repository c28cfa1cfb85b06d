"""What all parts of a report have in common."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Missable = Annotated[
    float | None, BeforeValidator(lambda x: None if isinstance(x, float) and not math.isfinite(x) else x)
]
"""A number that may be missing; JSON has no infinity, so what is not finite counts as missing."""


class Part(BaseModel):
    """A part of a report: nothing that is not listed, and nothing that changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def told(description: str, default: Any = ...) -> Any:
    """A field and what the reference says of it; without a default it must be given."""
    return Field(default, description=description)
