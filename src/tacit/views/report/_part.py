"""What all parts of a report have in common."""

from __future__ import annotations

import inspect
import math
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

__all__ = ["Missable", "Part"]


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Missable = Annotated[float | None, BeforeValidator(_finite)]
"""A number that may be missing; JSON has no infinity, so what is not finite counts as missing."""


def _described(schema: dict[str, Any], part: type[BaseModel]) -> None:
    """The attributes of a docstring as descriptions of the schema's fields."""
    told, _, listed = (inspect.getdoc(part) or "").partition("Attributes:\n")
    schema["description"] = told.strip()
    for name, words in re.findall(r"^    (\w+): ((?:.|\n {8})*)", listed, re.MULTILINE):
        schema["properties"][name]["description"] = " ".join(words.split())


class Part(BaseModel):
    """A part of a report: nothing that is not listed, and nothing that changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_described)
