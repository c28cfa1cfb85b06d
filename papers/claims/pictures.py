"""Our pictures of the papers' figures, small, from the trainings by which claims are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from papers import balanced
from papers.claims.bench import Bench
from papers.making import draw, draw_balanced
from papers.page import THUMBNAILS, run_of
from papers.registry import FIGURES, Attacked, Balanced, Drawn, Figure
from tacit.errors import DataError

__all__ = ["draw_all"]

WIDTH, COLOURS = 720, 256  # of a small picture, which is to be read and to take little room


def draw_all(
    bench: Bench, folder: Path = THUMBNAILS, *, names: Sequence[str] = (), told: Callable[[str], None]
) -> list[Path]:
    """Draw every figure that a training of the bench has, or some of them; what lacks its files is left as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for figure in FIGURES.values():
        if isinstance(figure, Attacked) or (names and figure.name not in names):
            continue
        try:
            with TemporaryDirectory() as place:
                made.append(_small(_drawn(figure, bench, Path(place)), folder / f"{figure.name}.png"))
        except DataError as error:
            told(f"{figure.name}: not drawn, {error}")
            continue
        told(f"{figure.name}: {made[-1]}")
    return made


def _drawn(figure: Figure, bench: Bench, out: Path) -> Path:
    run, data = run_of(figure)
    found, _ = bench.result(run, data)
    if isinstance(figure, Drawn):
        made = draw(figure, found, bench.named(data), out)
    elif isinstance(figure, Balanced):
        made = draw_balanced(figure, found if data == "toy" else balanced.by_batch(found), bench.named(data), out)
    else:
        picture: Path = found.drawn[figure.name.removeprefix("001-")]
        return picture
    assert made.picture is not None
    return made.picture


def _small(picture: Path, path: Path) -> Path:
    from PIL import Image

    with Image.open(picture) as whole:
        height = round(whole.height * WIDTH / whole.width)
        small = whole.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS)
        small.quantize(COLOURS).save(path, optimize=True)
    return path
