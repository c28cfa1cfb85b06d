"""How every figure of the papers looks: colours of settings, and a sheet with title, panels and legend."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "#8a8a8a"
"""Of what is there for comparison only."""

COLOURS: Mapping[str, str] = {
    "none": "#333333",
    "iso": "#d9791a",
    "max_norm": "#2a8f57",
    "marvell": "#1f6fb2",
    "matched": "#b3261e",
    "randomized_response": "#7a4fa3",
}
"""One for each protection, the same in all figures."""

_LETTER = 0.0084  # width of a title's letter in inches, for each point of its size

_STYLE: Any = {
    **{"font.size": 9, "axes.titlesize": 9.5, "axes.spines.top": False, "axes.spines.right": False},
    **{"axes.grid": True, "grid.color": "#e6e6e6", "axes.axisbelow": True, "legend.frameon": False},
}


def needs_matplotlib() -> None:
    """Refuse to begin what could not be drawn in the end."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("figures need matplotlib, which is not installed: pip install -e '.[figures]' in the checkout")


def colour_of(protection: str) -> str:
    """The protection's colour; grey for one that has none."""
    return COLOURS.get(protection, GREY)


def shades(settings: Sequence[str], protections: Sequence[str]) -> dict[str, Any]:
    """A colour for each setting: that of its protection, darker the later the setting stands.

    Args:
        settings: their labels, mild ones first.
        protections: the protection of each.
    """
    from matplotlib.colors import to_rgb

    chosen: dict[str, Any] = {}
    for protection in dict.fromkeys(protections):
        own = [label for label, of in zip(settings, protections, strict=True) if of == protection]
        base = to_rgb(colour_of(protection))
        for place, label in enumerate(own):
            pale = 0.62 * (1 - (place + 1) / len(own))
            chosen[label] = tuple(channel + (1 - channel) * pale for channel in base)
    return chosen


@contextmanager
def styled() -> Iterator[None]:
    """Draw inside this, and every figure looks alike."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        yield


class Sheet:
    """One figure in the making.

    Args:
        title: what it is, and of which data.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._figure: Figure | None = None
        self._height = 0.0

    @property
    def figure(self) -> Figure:
        """The figure, once it has panels."""
        if self._figure is None:
            raise UsageError(f"{self.title!r} has no panels yet: call panels() first")
        return self._figure

    def panels(
        self, rows: int, columns: int, *, each: tuple[float, float] = (3.1, 2.3), left: float = 0.65, **options: Any
    ) -> list[list[Axes]]:
        """Make the figure, with room for title and legend.

        Args:
            rows: of panels.
            columns: of panels.
            each: width and height of a panel, in inches.
            left: room for the labels of the first column, in inches.
            options: for `Figure.subplots`.
        """
        from matplotlib.figure import Figure

        width = max(8.0, columns * each[0] + left + 0.2)
        head = 0.98
        self._height = rows * (each[1] + 0.35) + head + 0.55
        self._figure = Figure(figsize=(width, self._height))
        axes = self._figure.subplots(rows, columns, squeeze=False, **options)
        self._figure.subplots_adjust(
            left=left / width, right=1 - 0.15 / width, top=1 - head / self._height,
            bottom=0.75 / self._height, wspace=0.26, hspace=0.48,
        )  # fmt: skip
        self._figure.text(
            0.15 / width,
            1 - 0.12 / self._height,
            self.title,
            ha="left",
            va="top",
            fontweight="bold",
            fontsize=min(12.0, width / (_LETTER * max(1, len(self.title)))),
        )
        return [list(row) for row in axes]

    def legend(self, handles: Sequence[Any], labels: Sequence[str], *, columns: int = 8) -> None:
        """One legend for all panels, under the title."""
        self.figure.legend(
            handles, labels, loc="upper left", bbox_to_anchor=(0.05 / self.figure.get_figwidth(),
            1 - 0.34 / self._height), ncols=min(columns, max(1, len(labels))), fontsize=8.5, columnspacing=1.4,
            handletextpad=0.5, borderaxespad=0.3, labelspacing=0.25,
        )  # fmt: skip

    def save(self, path: Path) -> Path:
        """As PNG, without a date, so that the same figure is the same file."""
        self.figure.savefig(path, dpi=140, metadata={"Software": None})
        return path
