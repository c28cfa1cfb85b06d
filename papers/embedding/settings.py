"""What is trained for the report's table and figures: every setting as data, trained once however often it is drawn.

The report ("Technical Report of Embedding Protection in Federated Learning") weighs its losses against the cross
entropy. Here as there every loss is a mean over the rows of a batch: of squared errors, summed over the columns of a
row. Figures 3 to 8 come from private data there; the weights are the report's own, and what they do on other data is
what the lab finds out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.errors import UsageError

__all__ = ["BASELINE", "FIGURES", "MILD", "PICTURES", "STDS", "THEIRS", "WEIGHTS", "Point", "chosen", "points"]

Part = tuple[str, Mapping[str, Any]]

BASELINE = "none"
"""The point without protection."""

WEIGHTS = (0.01, 0.1, 0.15)
"""Figure 3's weights of the distance correlation."""

STDS = (1.5, 5.0, 12.5, 15.0, 17.5, 25.0)
"""Figure 7's standard deviations of the noise on the embedding."""

MILD = (0.15, 0.5)
"""Milder noise for figure 8, whose amount the report does not tell: that of a model about as good is drawn."""


THEIRS: Mapping[str, tuple[float, float]] = {
    "none": (7.949, 0.01671),
    "adversarial-1": (114.7, 0.1759),
    "noise-1": (132.1, 0.3953),
    "adversarial-1+noise-1": (256.8, 0.6133),
}
"""The report's table 2: for each setting its reconstruction loss and its cross entropy."""


@dataclass(frozen=True)
class Point:
    """One setting: a model that is trained and judged.

    Attributes:
        name: of its record.
        label: in figures and tables.
        parts: the feature party's protections in order, each with its options.
        batch_factor: the batch size over that of the other points.
    """

    name: str
    label: str
    parts: tuple[Part, ...] = ()
    batch_factor: float = field(default=1.0, kw_only=True)


def _distance(weight: float, *, log: bool) -> Part:
    return "distance_correlation", {"weight": weight, "log": log}


def _noise(weight: float, kind: str = "gaussian", width: float = 2.0) -> Part:
    return "noise_regularization", {"weight": weight, "noise": kind, "width": width}


def _adversary(weight: float, clip: float | None) -> Part:
    return "adversarial", {"weight": weight, "clip": clip}


def points(table_noise: Mapping[str, Any]) -> dict[str, Point]:
    """All settings by their names.

    Args:
        table_noise: kind and width of the noise in table 2, which depend on the range of the data.
    """
    drawn = _noise(1.0, table_noise["noise"], table_noise["width"])
    made = [
        Point(BASELINE, "no protection"),
        # table 2: the reversal without bounds, as the report has it, and with the bounds that are the default here
        Point("adversarial-1", "adversarial 1", (_adversary(1.0, None),)),
        Point("noise-1", "noise reg. 1", (drawn,)),
        Point("adversarial-1+noise-1", "adversarial 1 + noise reg. 1", (_adversary(1.0, None), drawn)),
        Point("bounded-1", "bounded adversarial 1", (_adversary(1.0, 1.0),)),
        Point("bounded-1+noise-1", "bounded adversarial 1 + noise reg. 1", (_adversary(1.0, 1.0), drawn)),
        # figures 3 and 4; 0.5 is what the authors' public code sets for Fashion-MNIST, in our units
        *(Point(f"dcor-{w:g}", f"dCor {w:g}", (_distance(w, log=False),)) for w in WEIGHTS),
        *(Point(f"logdcor-{w:g}", f"log dCor {w:g}", (_distance(w, log=True),)) for w in (*WEIGHTS, 0.5)),
        *(
            Point(f"{name}@{factor:g}", f"{label}, batch x {factor:g}", parts, batch_factor=factor)
            for factor in (0.5, 2.0)
            for name, label, parts in (
                (BASELINE, "no protection", ()),
                ("logdcor-0.1", "log dCor 0.1", (_distance(0.1, log=True),)),
            )
        ),
        # figures 5 and 6
        *(
            Point(f"noise-{kind}-{w:g}", f"noise reg. {w:g} {kind}", (_noise(w, kind),))
            for w in (0.001, 0.025)
            for kind in ("gaussian", "uniform")
        ),
        *(
            Point(
                f"logdcor-0.01+noise-{w:g}", f"log dCor 0.01 + noise reg. {w:g}", (_distance(0.01, log=True), _noise(w))
            )
            for w in (0.001, 0.01)
        ),
        # figures 7 and 8
        *(
            Point(f"gaussian-{std:g}", f"Gaussian noise {std:g}", (("gaussian", {"std": std}),))
            for std in (*MILD, *STDS)
        ),
    ]
    return {point.name: point for point in made}


FIGURES: Mapping[str, tuple[str, ...]] = {
    "table-2": (
        *(BASELINE, "adversarial-1", "noise-1", "adversarial-1+noise-1"),
        *("bounded-1", "bounded-1+noise-1"),
    ),
    "figure-2": (),
    "figure-3": (BASELINE, *(f"{kind}-{w:g}" for kind in ("dcor", "logdcor") for w in WEIGHTS), "logdcor-0.5"),
    "figure-4": (*(BASELINE, f"{BASELINE}@0.5", f"{BASELINE}@2", "logdcor-0.1", "logdcor-0.1@0.5", "logdcor-0.1@2"),),
    "figure-5": (BASELINE, *(f"noise-{kind}-{w:g}" for w in (0.001, 0.025) for kind in ("gaussian", "uniform"))),
    "figure-6": (
        *(BASELINE, "logdcor-0.01", "noise-gaussian-0.001"),
        *("logdcor-0.01+noise-0.001", "logdcor-0.01+noise-0.01"),
    ),
    "figure-7": (BASELINE, *(f"gaussian-{std:g}" for std in STDS)),
    "figure-8": (BASELINE, "logdcor-0.01+noise-0.01", *(f"gaussian-{std:g}" for std in (*MILD, *STDS))),
}
"""For each table or figure of the report the points that it draws. Figure 2 needs data and noise, but no model."""

PICTURES = (
    *(BASELINE, "logdcor-0.15", "logdcor-0.5", "adversarial-1", "bounded-1", "noise-1", "adversarial-1+noise-1"),
    *("gaussian-1.5", "gaussian-5", "gaussian-17.5"),
)
"""Which points the page of pictures shows, as far as they were trained."""


def chosen(only: Sequence[str] | None) -> tuple[str, ...]:
    """The figures that were asked for, in the report's order; all of them for None."""
    if not only:
        return tuple(FIGURES)
    unknown = [name for name in only if name not in FIGURES]
    if unknown:
        raise UsageError(f"there is no {unknown[0]!r} in the report; there are: {', '.join(FIGURES)}")
    return tuple(name for name in FIGURES if name in only)
