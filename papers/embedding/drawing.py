"""The report's table and figures as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from papers.embedding.records import Reading
from papers.embedding.settings import PICTURES, THEIRS
from papers.sheet import GREY, Sheet, styled
from tacit.lab.data.fashion import SIDE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

_BLUE, _ORANGE, _GREEN = "#1f6fb2", "#d9791a", "#2a8f57"
_ABOVE: Any = {
    **{"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": 6},
    **{"fontsize": 8, "columnspacing": 1.2, "handletextpad": 0.4, "borderaxespad": 0.2},
}
_LETTER = 0.073  # inches of a letter of a setting's label
_DECADE = 10  # losses further apart than this are drawn by their logarithms
_CURVE = 2.0  # inches of a panel of curves
_TEN = (
    *("#222222", "#1f6fb2", "#d9791a", "#2a8f57", "#b3261e", "#7a4fa3"),
    *("#8c564b", "#c2398f", "#7f8c1d", "#1399a8"),
)  # of curves, and of their settings' labels


def draw(figure: str, found: Mapping[str, Reading], noise: Mapping[str, Any] | None, *, title: str, out: Path) -> Path:
    """One figure as PNG.

    Args:
        figure: its name.
        found: the settings that it draws.
        noise: figure 2's record.
        title: of the data set.
        out: the folder.
    """
    sheet = Sheet(f"{TITLES[figure]} ({title})")
    with styled():
        if figure == "figure-2":
            _noise_lines(sheet.panels(1, 1, each=(7.0, 2.6))[0][0], noise or {})
        elif figure == "figure-4":
            above, below = sheet.panels(2, 2, each=(5.0, 2.6))
            _size_lines(above, found)
            _curves(below, found, {name: _of_size(name) for name in found}, ("dcor", "utility"))
        else:  # a line for each setting
            height = 0.4 + (0.42 if figure == "table-2" else 0.3) * len(found)
            left = 0.3 + _LETTER * max(len(one.label) for one in found.values())
            if figure == "table-2":
                _table_bars(sheet.panels(1, 3, each=(2.9, height), left=left, sharey=True)[0], found)
            else:
                ratios = {"height_ratios": [height, _CURVE]}
                above, below = sheet.panels(2, 3, each=(2.9, (height + _CURVE) / 2), left=left, gridspec_kw=ratios)
                _dots(above, found)
                colours = dict(zip(found, _TEN, strict=False))
                for label, colour in zip(above[0].get_yticklabels(), colours.values(), strict=True):
                    label.set_color(colour)
                for axis in above[1:]:
                    axis.tick_params(labelleft=False)
                _curves(below, found, {name: {"color": colour} for name, colour in colours.items()})
        return sheet.save(out / f"{figure}.png")


def draw_pictures(found: Mapping[str, Reading], *, title: str, out: Path) -> Path | None:
    """One unseen picture of each class, and below it what the decoder makes of it under each setting."""
    shown = [found[name] for name in PICTURES if name in found and found[name].record.get("pictures")]
    if not shown:
        return None
    first = shown[0].record["pictures"]
    rows = [("original", first["original"], "")]
    for one in shown:
        worth = f"{one.utility['name']} {one.utility['value']:.2f}"
        rows.append((one.label, one.record["pictures"]["decoder"], f"error {_error(one):.2f}, {worth}"))
    sheet = Sheet(f"What an independent decoder reads of {title} pictures that it never saw")
    with styled():
        axes = sheet.panels(len(rows), len(first["original"]), each=(0.8, 0.5), left=2.6)
        sheet.figure.subplots_adjust(wspace=0.05, hspace=0.05)
        for (label, pictures, note), line in zip(rows, axes, strict=True):
            for picture, place in zip(pictures, line, strict=True):
                square = [picture[start : start + SIDE] for start in range(0, len(picture), SIDE)]
                place.imshow(square, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
                place.set_axis_off()
            line[0].text(
                -0.15, 0.5, f"{label}\n{note}".strip(), transform=line[0].transAxes, ha="right", va="center",
                fontsize=8.5,
            )  # fmt: skip
        return sheet.save(out / "pictures.png")


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
    axes[1].axvline(1, color=GREY, lw=1, ls="--")
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
        _line(axis, [int(size) for size in values], list(values.values()), kind, color=colour)
    axis.axhline(0, color=GREY, lw=1)
    _size_axis(axis, "distance correlation with noise")
    axis.legend(fontsize=8)


def _size_lines(axes: Sequence[Axes], found: Mapping[str, Reading]) -> None:
    """Distance correlation by the batch size at which it is measured, plain and unbiased, one line for each model."""
    for kind, axis in zip(("by_batch_size", "unbiased"), axes, strict=True):
        for (name, one), mark in zip(found.items(), "os^os^", strict=False):
            values = [one.dcor(size, kind) for size in one.sizes]
            _line(axis, one.sizes, values, one.label, mark, **_of_size(name))
        _size_axis(axis, f"dCor(X, f(X)), {'plain' if kind == 'by_batch_size' else 'unbiased'}")
        axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
    axes[0].legend(**_ABOVE)


def _of_size(name: str) -> dict[str, Any]:
    """How a setting of figure 4 is drawn: its colour by its protection, its line by the batches it is trained in."""
    lines = {"0.5": ":", "2": "--"}
    colour = _ORANGE if name.startswith("logdcor") else _BLUE
    return {"color": colour, "ls": lines.get(name.partition("@")[2], "-")}


def _curves(
    axes: Sequence[Axes],
    found: Mapping[str, Reading],
    how: Mapping[str, Mapping[str, Any]],
    shown: Sequence[str] = ("dcor", "loss", "utility"),
) -> None:
    """What held-out rows show over training, a line for each setting: what figures 3 to 8 of the report are."""
    first = next(iter(found.values()))
    labels = {"dcor": "dCor(X, f(X))", "loss": "reconstruction loss", "utility": f"test {first.utility['name']}"}
    for axis, name in zip(axes, shown, strict=True):
        for setting, one in found.items():
            axis.plot(one.curve["epoch"], one.curve[name], lw=1.3, **how[setting])
        axis.set_title(f"{labels[name]} over training", loc="left")
        axis.set_xlabel("epochs")
        drawn = [value for one in found.values() for value in one.curve[name]]
        if name == "loss" and max(drawn) > _DECADE * min(drawn):
            axis.set_yscale("log")


def _line(
    axis: Axes, sizes: Sequence[int], values: Sequence[Mapping[str, float]], label: str, mark: str = "o", **how: Any
) -> None:
    axis.plot(sizes, [one["value"] for one in values], marker=mark, ms=4.5, lw=1.4, label=label, **how)
    low, high = ([one[end] for one in values] for end in ("low", "high"))
    axis.fill_between(sizes, low, high, color=how["color"], alpha=0.12, lw=0)


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
    axes[0].axvline(rows[0].record["report"]["mean"], color=GREY, lw=1, ls="--", label="answering the mean")
    axes[0].set_xlabel("reconstruction loss beside training")
    axes[0].legend(**_ABOVE)
    entropies = [one.utility["test_loss"] for one in rows]
    _bars(axes[1], rows, entropies, [pair[1] for pair in THEIRS.values()] if known else None)
    axes[1].set_xlabel("cross entropy")
    _bars(axes[2], rows, [one.worst["value"] for one in rows], None)
    axes[2].axvline(1, color=GREY, lw=1, ls="--")
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


def _error(one: Reading) -> float:
    """The decoder's error over that of the mean."""
    return next(relative["value"] for name, _, relative in one.attacks if name == "decoder")
