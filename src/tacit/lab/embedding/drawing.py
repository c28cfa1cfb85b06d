"""The report's table and figures as pictures, each with what the report says about it underneath."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.lab.data.fashion import SIDE
from tacit.lab.embedding.records import Reading
from tacit.lab.embedding.settings import PICTURES
from tacit.lab.embedding.statements import THEIRS, Statement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["TITLES", "draw", "draw_pictures"]

TITLES: Mapping[str, str] = {
    "table-2": "Table 2: adversarial reconstructor and noise regularization",
    "figure-2": "Figure 2: distance correlation between X and noise, by batch size",
    "figure-3": "Figure 3: minimizing the distance correlation",
    "figure-4": "Figure 4: distance correlation at different batch sizes",
    "figure-5": "Figure 5: noise regularization with two kinds of noise",
    "figure-6": "Figure 6: distance correlation and noise regularization together",
    "figure-7": "Figure 7: Gaussian noise on the embedding",
    "figure-8": "Figure 8: Gaussian noise beside both regularizers",
}
"""What each of them shows."""

_BLUE, _ORANGE, _GREEN, _GREY, _RED = "#1f6fb2", "#d9791a", "#2a8f57", "#8a8a8a", "#b3261e"
_MARKS = {True: ("✓", _GREEN), False: ("✗", _RED), None: ("•", _GREY)}
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "tacit",  # so that the same figure is the same file
}
_ABOVE: Any = {
    **{"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": 6},
    **{"fontsize": 8, "columnspacing": 1.2, "handletextpad": 0.4, "borderaxespad": 0.2},
}
_WRAP = 172  # letters of a line under a figure
_LETTER = 0.0066  # the width of a letter of a setting's label, over that of a figure
_LINE = 0.175  # its height in inches


def draw(
    figure: str,
    found: Mapping[str, Reading],
    noise: Mapping[str, Any] | None,
    said: Sequence[Statement],
    *,
    title: str,
    out: Path,
) -> list[Path]:
    """One figure as PNG and SVG.

    Args:
        figure: its name.
        found: the settings that it draws.
        noise: figure 2's record.
        said: what stands underneath.
        title: of the data set.
        out: the folder.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    settings = figure not in ("figure-2", "figure-4")  # one line for each
    lines = _underneath([one for one in said if one.agrees is not None or figure in ("figure-2", "figure-4")])
    panels = {"figure-2": 1, "figure-4": 2}.get(figure, 3)
    body = 3.2 if not settings else 1.3 + (0.42 if figure == "table-2" else 0.3) * len(found)
    foot = _LINE * len(lines) + 0.25
    with rc_context(_STYLE):
        height = body + foot + 0.5
        left = 0.03 + _LETTER * max(len(one.label) for one in found.values()) if settings else 0.06
        drawn = Figure(figsize=(11, height))
        axes = drawn.subplots(1, panels, squeeze=False, sharey=settings)
        drawn.subplots_adjust(left=left, right=0.98, top=1 - 0.62 / height, wspace=0.22)
        drawn.subplots_adjust(bottom=(foot + 0.55) / height)
        drawn.suptitle(f"{TITLES[figure]} ({title})", x=0.015, ha="left", fontsize=12, fontweight="bold")
        _panels(figure, axes[0], found, noise)
        for i, (text, colour) in enumerate(lines):
            drawn.text(0.015, (foot - 0.1 - _LINE * (i + 1)) / height, text, color=colour, fontsize=8.5, va="bottom")
        return _saved(drawn, figure, out)


def draw_pictures(found: Mapping[str, Reading], *, title: str, out: Path) -> list[Path]:
    """One unseen picture of each class, and below it what the decoder makes of it under each setting."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shown = [found[name] for name in PICTURES if name in found and found[name].record.get("pictures")]
    if not shown:
        return []
    first = shown[0].record["pictures"]
    rows = [("original", first["original"], "")]
    for one in shown:
        worth = f"{one.utility['name']} {one.utility['value']:.2f}"
        rows.append((one.label, one.record["pictures"]["decoder"], f"error {_error(one):.2f}, {worth}"))
    columns = len(first["original"])
    with rc_context(_STYLE):
        height = 0.7 + 0.84 * len(rows)
        drawn = Figure(figsize=(2.4 + 0.82 * columns, height))
        axes = drawn.subplots(len(rows), columns, squeeze=False)
        drawn.subplots_adjust(left=0.235, right=0.99, top=1 - 0.62 / height, bottom=0.01, wspace=0.05, hspace=0.05)
        drawn.suptitle(
            f"What an independent decoder reads of {title} pictures that it never saw", x=0.015, ha="left", fontsize=12,
            fontweight="bold",
        )  # fmt: skip
        for (label, pictures, note), line in zip(rows, axes, strict=True):
            for picture, place in zip(pictures, line, strict=True):
                square = [picture[start : start + SIDE] for start in range(0, len(picture), SIDE)]
                place.imshow(square, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
                place.set_axis_off()
            middle = line[0].get_position()
            drawn.text(
                0.225, (middle.y0 + middle.y1) / 2, f"{label}\n{note}".strip(), ha="right", va="center", fontsize=8.5
            )
        return _saved(drawn, "pictures", out)


def _panels(figure: str, axes: Sequence[Axes], found: Mapping[str, Reading], noise: Mapping[str, Any] | None) -> None:
    """Fill the panels of one figure."""
    if figure == "figure-2":
        _noise_lines(axes[0], noise or {})
    elif figure == "figure-4":
        _size_lines(axes, found)
    elif figure == "table-2":
        _table_bars(axes, found)
    else:
        _dots(axes, found)


def _dots(axes: Sequence[Axes], found: Mapping[str, Reading]) -> None:
    """For each setting a line: distance correlation, reconstruction, and what the model is worth."""
    rows = list(found.values())
    places = range(len(rows))
    for axis in axes:
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.axhspan(-0.5, 0.5, color="#f4f4f4", zorder=0)
    axes[0].set_yticks(list(places), [one.label for one in rows])
    _intervals(axes[0], [one.dcor() for one in rows], _BLUE, "plain", offset=-0.12)
    fair = [one.dcor(kind="unbiased")["value"] for one in rows]
    axes[0].plot(fair, [place + 0.14 for place in places], "D", color=_ORANGE, ms=4, label="unbiased")
    axes[0].set_xlabel(f"dCor(X, f(X)), batches of {rows[0].batch_size}")
    axes[0].set_xlim(left=min(0.0, *fair))
    axes[0].legend(**_ABOVE)
    _intervals(axes[1], [one.worst for one in rows], _BLUE, "independent", offset=-0.12)
    losses = [one.relative_loss for one in rows]
    axes[1].plot(losses, [place + 0.14 for place in places], "D", color=_ORANGE, ms=4, label="beside training (report)")
    axes[1].axvline(1, color=_GREY, lw=1, ls="--")
    axes[1].set_xlabel("attacker's error over that of the mean")
    axes[1].set_xlim(left=0)
    axes[1].legend(**_ABOVE)
    _intervals(axes[2], [one.utility for one in rows], _GREEN, "")
    axes[2].set_xlabel(f"test {rows[0].utility['name']}")


def _intervals(
    axis: Axes, values: Sequence[Mapping[str, Any]], colour: str, label: str, *, offset: float = 0.0
) -> None:
    """Points with their 95% intervals, one on each line."""
    places = [place + offset for place in range(len(values))]
    centre = [one["value"] for one in values]
    around = [
        [max(0.0, one["value"] - one["low"]) for one in values],
        [max(0.0, one["high"] - one["value"]) for one in values],
    ]
    axis.errorbar(centre, places, xerr=around, fmt="o", color=colour, ms=5, capsize=2.5, lw=1.2, label=label or None)


def _noise_lines(axis: Axes, noise: Mapping[str, Any]) -> None:
    """Plain and unbiased distance correlation with independent noise."""
    for kind, colour in (("plain", _BLUE), ("unbiased", _ORANGE)):
        values = noise.get(kind, {})
        _line(axis, [int(size) for size in values], list(values.values()), colour, kind)
    axis.axhline(0, color=_GREY, lw=1)
    _size_axis(axis, "distance correlation with noise")
    axis.legend(fontsize=8)


def _size_lines(axes: Sequence[Axes], found: Mapping[str, Reading]) -> None:
    """Distance correlation by the batch size at which it is measured, plain and unbiased, one line for each model."""
    for kind, axis in zip(("by_batch_size", "unbiased"), axes, strict=True):
        for (name, one), mark in zip(found.items(), "os^os^", strict=False):
            colour = _ORANGE if name.startswith("logdcor") else _BLUE
            _line(axis, one.sizes, [one.dcor(size, kind) for size in one.sizes], colour, one.label, mark)
        _size_axis(axis, f"dCor(X, f(X)), {'plain' if kind == 'by_batch_size' else 'unbiased'}")
        axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
    axes[0].legend(**_ABOVE)


def _line(
    axis: Axes, sizes: Sequence[int], values: Sequence[Mapping[str, float]], colour: str, label: str, mark: str = "o"
) -> None:
    middle = [one["value"] for one in values]
    axis.plot(sizes, middle, marker=mark, ms=4.5, lw=1.4, color=colour, label=label)
    axis.fill_between(
        sizes, [one["low"] for one in values], [one["high"] for one in values], color=colour, alpha=0.12, lw=0
    )


def _size_axis(axis: Axes, label: str) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xlabel("rows of a batch")
    axis.set_ylabel(label)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _table_bars(axes: Sequence[Axes], found: Mapping[str, Reading]) -> None:
    """Reconstruction loss and cross entropy, the report's beside ours on the same data; then our own judge."""
    rows = list(found.values())
    known = rows[0].record["settings"]["data"] == "fashion"
    _bars(axes[0], rows, [one.loss for one in rows], [pair[0] for pair in THEIRS.values()] if known else None)
    axes[0].axvline(rows[0].record["report"]["mean"], color=_GREY, lw=1, ls="--", label="answering the mean")
    axes[0].set_xlabel("reconstruction loss beside training")
    axes[0].legend(**_ABOVE)
    entropies = [one.utility["test_loss"] for one in rows]
    _bars(axes[1], rows, entropies, [pair[1] for pair in THEIRS.values()] if known else None)
    axes[1].set_xlabel("cross entropy")
    _bars(axes[2], rows, [one.worst["value"] for one in rows], None)
    axes[2].axvline(1, color=_GREY, lw=1, ls="--")
    axes[2].set_xlabel("independent error over the mean's")


def _bars(axis: Axes, rows: Sequence[Reading], ours: Sequence[float], theirs: Sequence[float] | None) -> None:
    """Bars for each setting with their numbers, the report's below ours."""
    width = 0.6 if theirs is None else 0.38
    shift = 0.0 if theirs is None else width / 2
    drawn = axis.barh(
        [place - shift for place in range(len(rows))], ours, width, color=_BLUE, label="here, held-out rows"
    )
    axis.bar_label(drawn, fmt="%.3g", fontsize=7.5, padding=2)
    if theirs is not None:
        drawn = axis.barh([place + shift for place in range(len(theirs))], theirs, width, color=_ORANGE, label="report")
        axis.bar_label(drawn, fmt="%.3g", fontsize=7.5, padding=2)
    axis.set_yticks(range(len(rows)), [one.label for one in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.margins(x=0.12)
    axis.grid(axis="y", visible=False)


def _underneath(said: Sequence[Statement]) -> list[tuple[str, str]]:
    """What stands under a figure, line by line, each with its colour."""
    lines: list[tuple[str, str]] = []
    for one in said:
        mark, colour = _MARKS[one.agrees]
        says = f"{mark} {one.verdict}: {one.text}" if one.agrees is not None else f"{mark} {one.text}"
        lines += [(line, colour) for line in textwrap.wrap(says, _WRAP, subsequent_indent="    ")]
        more = f"{one.found}." + (f" Why: {one.why}." if one.why else "")
        lines += [
            (line, "#333333") for line in textwrap.wrap(more, _WRAP, initial_indent="    ", subsequent_indent="    ")
        ]
    return lines


def _error(one: Reading) -> float:
    """The decoder's error over that of the mean."""
    return next(relative["value"] for name, _, relative in one.attacks if name == "decoder")


def _saved(drawn: Figure, name: str, out: Path) -> list[Path]:
    """The figure in both formats; neither holds a date, so that the same figure is the same file."""
    paths = [out / f"{name}.{kind}" for kind in ("png", "svg")]
    drawn.savefig(paths[0], dpi=150, metadata={"Software": None})
    drawn.savefig(paths[1], metadata={"Date": None})
    return paths
