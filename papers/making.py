"""Figures from their names: train what they need once, draw them, and write their numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from papers import attacks, balanced, embedding
from papers.bibliography import paper_of
from papers.recipes import RECIPES, Asked, results
from papers.registry import FIGURES, Attacked, Balanced, Drawn, Embedded, Figure, chosen
from papers.sheet import Sheet, needs_matplotlib, styled
from tacit.errors import DataError
from tacit.progress import Progress

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Made", "balanced_numbers", "draw", "draw_balanced", "make", "make_from", "title"]

_SMALL = (8000, 2)  # rows and epochs of figures about embeddings at the small scale


@dataclass(frozen=True)
class Made:
    """One figure that was drawn.

    Attributes:
        name: as in the registry.
        picture: the PNG; None where there is none.
        numbers: the CSV of what is drawn.
        skipped: why it was not drawn; empty where it was.
    """

    name: str
    picture: Path | None
    numbers: Path | None
    skipped: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "figure": self.name,
            "picture": None if self.picture is None else str(self.picture),
            "numbers": None if self.numbers is None else str(self.numbers),
            "skipped": self.skipped or None,
        }


def make(
    names: Sequence[str], asked: Asked, out: Path, *, path: Path | None = None, progress: Progress = lambda *_: None
) -> list[Made]:
    """Train and draw.

    Args:
        names: of figures, or "all".
        asked: of which data, at which scale.
        out: the folder of pictures and numbers; trainings are kept in its folders and not done again.
        path: where the data set's files are, for the figures about embeddings.
        progress: called with what is being done, the parts done and all parts.
    """
    needs_matplotlib()
    figures = chosen(names, asked.data.name)
    embedded = [figure.inner for figure in figures if isinstance(figure, Embedded)]
    report = cache(lambda: _report(embedded, asked, out, path, progress))

    def one(figure: Figure) -> Made:
        if isinstance(figure, Embedded):
            return report()[figure.inner]
        if isinstance(figure, Balanced):
            return draw_balanced(figure, balanced_numbers(figure, asked, out, progress), asked.data.name, out)
        if isinstance(figure, Attacked):
            return _attacked(figure, asked, out, progress)
        table = results(RECIPES[figure.recipe], asked, out / "recipes", progress)
        return draw(figure, table, asked.data.name, out)

    made = _each(figures, one, lenient="all" in names)
    _summary(out / "summary.md", asked.data.name, ", ".join(f"{k} {v}" for k, v in asked.as_dict().items()), made)
    return made


def make_from(names: Sequence[str], results_file: Path, out: Path) -> list[Made]:
    """Draw figures from the results of a sweep that was done before; what it does not have is skipped in "all"."""
    from tacit.lab.sweeping.results import read

    needs_matplotlib()
    sweep = read(results_file)
    data = str(sweep.metadata.get("data", "unknown"))

    def one(figure: Figure) -> Made:
        if not isinstance(figure, Drawn) or RECIPES[figure.recipe].kind != "sweep":
            raise DataError(f"{figure.name} is not drawn from a sweep: leave --from out")
        return draw(figure, sweep.table, data, out)

    made = _each(chosen(names, data), one, lenient="all" in names)
    _summary(out / "summary.md", data, f"drawn from {results_file.name}", made)
    return made


def _each(figures: Sequence[Figure], make_one: Callable[[Figure], Made], *, lenient: bool) -> list[Made]:
    """Make every figure; where all were asked for, those that the data cannot give are skipped with the reason."""
    made = []
    for figure in figures:
        try:
            made.append(make_one(figure))
        except DataError as error:
            if not lenient:
                raise
            made.append(Made(figure.name, None, None, skipped=str(error)))
    return made


def draw(figure: Drawn, table: pl.DataFrame, data: str, out: Path) -> Made:
    """One figure from the results of its recipe: PNG and CSV."""
    numbers = figure.kind.numbers(table, data)
    if not numbers.height:
        raise DataError(
            f"the results hold no setting that {figure.name} draws: leave --from out, so that it is trained"
        )
    return _drawn(figure, numbers, figure.kind.draw, data, out)


def balanced_numbers(figure: Balanced, asked: Asked, out: Path, progress: Progress = lambda *_: None) -> pl.DataFrame:
    """What a figure of balanced classes draws."""
    return balanced.toy() if figure.data == "toy" else balanced.hints(asked, out / "recipes", progress)


def draw_balanced(figure: Balanced, numbers: pl.DataFrame, data: str, out: Path) -> Made:
    """A figure of balanced classes: PNG and CSV."""
    toy = figure.data == "toy"
    how = balanced.draw_toy if toy else balanced.draw_hints
    return _drawn(figure, numbers, how, figure.data if toy else data, out)


def _drawn(
    figure: Figure, numbers: pl.DataFrame, how: Callable[[pl.DataFrame, Sheet], None], data: str, out: Path
) -> Made:
    theirs = "" if data == figure.data else f"; the paper: {figure.data}"
    sheet = Sheet(f"{title(figure.name)}: {figure.shows} ({data}{theirs})")
    with styled():
        how(numbers, sheet)
        picture = sheet.save(out / f"{figure.name}.png")
    csv = out / f"{figure.name}.csv"
    numbers.write_csv(csv, float_precision=6)
    return Made(figure.name, picture, csv)


def _report(figures: Sequence[str], asked: Asked, out: Path, path: Path | None, progress: Progress) -> dict[str, Made]:
    """The figures about embeddings, which share their models."""
    if asked.data.name not in embedding.DATA:
        raise DataError(
            f"001-{figures[0]} is about embeddings of {', '.join(embedding.DATA)}: take one of these as --data"
        )
    small = asked.scale == "small"
    few = min(_SMALL[0], len(asked.data.train) + len(asked.data.test)) if small else None
    found = embedding.run(
        data=asked.data.name, out=out / "embedding", path=path, only=figures, device=asked.device, seed=asked.seed,
        rows=asked.rows or few,
        epochs=asked.epochs or (_SMALL[1] if small else None), progress=progress,
    )  # fmt: skip
    return {figure: Made(f"001-{figure}", found.drawn[figure], found.numbers) for figure in figures}


def _attacked(figure: Attacked, asked: Asked, out: Path, progress: Progress) -> Made:
    """The table of all attacks, as Markdown, JSON and CSV."""
    found = attacks.run(asked.data, epochs=asked.epochs or 3, seed=asked.seed, progress=progress)
    return Made(figure.name, None, found.save(out)[-1])


def title(name: str) -> str:
    """A figure's name as people cite it.

    >>> title("004-figure-2"), title("attacks")
    ('Li 2022, figure 2', 'attacks')
    """
    paper = paper_of(name)
    return name if paper is None else f"{paper.key}, {name.partition('-')[2].replace('-', ' ')}"


def _summary(path: Path, data: str, of: str, made: Sequence[Made]) -> None:
    """One page with every picture and where its numbers are."""
    lines = [f"# The papers' figures on {data}", "", f"Runs of our own: {of}.", ""]
    for one in made:
        lines += [f"## {title(one.name)}: {FIGURES[one.name].shows}", ""]
        if one.picture is not None:
            lines += [f"![{one.name}]({one.picture.relative_to(path.parent)})", ""]
        if one.numbers is not None:
            lines += [f"Its numbers: [{one.numbers.name}]({one.numbers.relative_to(path.parent)}).", ""]
        lines += [f"Not drawn: {one.skipped}.", ""] if one.skipped else []
    path.write_text("\n".join(lines))
