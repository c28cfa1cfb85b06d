"""How the papers' legends name settings, and the rows of those that a figure shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

__all__ = ["SEARCH", "SETTING", "Triple", "label_of", "labelled", "of_settings"]

Triple = tuple[str, str | None, float | None]
"""A setting as its protection, knob and strength."""

SETTING = ("protection", "knob", "strength", "options")
"""The columns of results that name a setting, whatever its seed; options hold what it has beside its strength."""

SEARCH = (("search", "papers"),)
"""With this option Marvell looks for its power as the papers do, where they name sumKL or L; legends leave it out."""

_KNOBS = {"scale": "s", "t": "t", "sum_kl": "sumKL", "detection_error": "L", "leak_auc": "AUC", "rate": "rate"}


def label_of(protection: str, knob: str | None, strength: float | None, others: str = "") -> str:
    """A setting as legends name it.

    >>> label_of("marvell", "scale", 4.0), label_of("none", None, None)
    ('marvell s=4', 'no noise')
    >>> label_of("matched", "leak_auc", 0.6, "visits=5")
    'matched AUC=0.6, visits=5'
    """
    if protection == "none":
        return "no noise"
    own = "" if knob is None or strength is None else f"{_KNOBS.get(knob, knob)}={strength:g}"
    return f"{protection} {', '.join(part for part in (own, others) if part)}".rstrip()


def others_of(options: str | None, knob: str | None) -> str:
    """The options beside the strength and `SEARCH`, from the JSON of a results file; empty where there are none.

    >>> others_of('{"leak_auc": 0.6, "visits": 5}', "leak_auc")
    'visits=5'
    """
    given: dict[str, Any] = json.loads(options or "{}")
    shown = ((name, f"{value:g}" if isinstance(value, float) else str(value)) for name, value in given.items())
    return ", ".join(f"{name}={value}" for name, value in shown if name != knob and (name, value) not in SEARCH)


def labelled(table: pl.DataFrame) -> pl.DataFrame:
    """Results with two columns more: `setting`, as legends name it, and `others`, its options beside the strength."""
    rows = list(table.select(SETTING).iter_rows())
    others = [others_of(options, knob) for _, knob, _, options in rows]
    names = [label_of(p, knob, value, other) for (p, knob, value, _), other in zip(rows, others, strict=True)]
    text = pl.String
    return table.with_columns(pl.Series("setting", names, dtype=text), pl.Series("others", others, dtype=text))


def of_settings(table: pl.DataFrame, settings: Sequence[Triple]) -> pl.DataFrame:
    """The rows of some settings, in this order; of one that was run with several other options, all of them."""
    wanted = pl.DataFrame(
        [(*setting, place) for place, setting in enumerate(settings)],
        schema={"protection": pl.String, "knob": pl.String, "strength": pl.Float64, "place": pl.Int64},
        orient="row",
    )
    cast = table.with_columns(pl.col("knob").cast(pl.String), pl.col("strength").cast(pl.Float64))
    joined = cast.join(wanted, on=["protection", "knob", "strength"], nulls_equal=True)
    return joined.sort("place", "step", maintain_order=True).drop("place")
