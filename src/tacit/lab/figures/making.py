"""Figures from a name: train what they need once, draw them, and write their numbers and what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import DataError, UsageError
from tacit.lab.embedding.statements import Statement
from tacit.lab.figures.recipes import RECIPES, Asked, results
from tacit.lab.figures.registry import FIGURES, PAPERS, Drawn, Embedded, chosen
from tacit.lab.figures.style import Sheet, needs_matplotlib, styled

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Made", "counted", "draw", "make", "make_from"]

Progress = Callable[[str, int, int], None]
_SMALL = (8000, 2)  # rows and epochs of the embedding lab at the small scale


@dataclass(frozen=True)
class Made:
    """One figure that was drawn.

    Attributes:
        name: as in the registry.
        picture: the PNG; None where it could not be drawn.
        numbers: the CSV of what is drawn.
        said: what the paper says, and whether it is so here.
        skipped: why it was not drawn; empty where it was.
    """

    name: str
    picture: Path | None
    numbers: Path | None
    said: Sequence[Statement] = ()
    skipped: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "figure": self.name,
            "picture": None if self.picture is None else str(self.picture),
            "numbers": None if self.numbers is None else str(self.numbers),
            "statements": [one.as_dict() for one in self.said],
            "skipped": self.skipped or None,
        }


def make(
    names: Sequence[str], asked: Asked, out: Path, *, path: Path | None = None, progress: Progress = lambda *_: None
) -> list[Made]:
    """Train and draw.

    Args:
        names: of figures, or "all".
        asked: of which data, at which scale.
        out: the folder of pictures and numbers; trainings are kept in its folder `recipes` and not done again.
        path: where the data set's files are, for the figures of the embedding lab.
        progress: called with what is being done, the parts done and all parts.
    """
    needs_matplotlib()
    figures = chosen(names, asked.data.name)
    made = []
    for figure in figures:
        try:
            if isinstance(figure, Embedded):
                made.append(_embedded(figure, asked, out, path, progress))
            else:
                table = results(RECIPES[figure.recipe], asked, out / "recipes", progress)
                made.append(draw(figure, table, asked.data.name, out))
        except DataError as error:
            if "all" not in names:
                raise
            made.append(Made(figure.name, None, None, skipped=str(error)))
    _summary(out / "summary.md", asked.data.name, ", ".join(f"{k} {v}" for k, v in asked.as_dict().items()), made)
    return made


def make_from(names: Sequence[str], results_file: Path, out: Path) -> list[Made]:
    """Draw figures from the results of a sweep that was done before; what it does not have is skipped in "all"."""
    from tacit.lab.sweeping.results import read

    needs_matplotlib()
    sweep = read(results_file)
    data = str(sweep.metadata.get("data", "unknown"))
    made = []
    for figure in chosen(names, data):
        try:
            if isinstance(figure, Embedded) or RECIPES[figure.recipe].kind != "sweep":
                raise DataError(f"{figure.name} is not drawn from a sweep: leave --from out")
            made.append(draw(figure, sweep.table, data, out))
        except DataError as error:
            if "all" not in names:
                raise
            made.append(Made(figure.name, None, None, skipped=str(error)))
    _summary(out / "summary.md", data, f"drawn from {results_file.name}", made)
    return made


def draw(figure: Drawn, table: pl.DataFrame, data: str, out: Path) -> Made:
    """One figure from the results of its recipe: PNG and CSV."""
    numbers = figure.kind.numbers(table, data)
    if not numbers.height:
        raise DataError(
            f"the results hold no setting that {figure.name} draws: leave --from out, so that it is trained"
        )
    said = figure.kind.said(numbers)
    theirs = "" if data == figure.data else f"; the paper: {figure.data}"
    sheet = Sheet(f"{_title(figure.name)}: {figure.shows} ({data}{theirs})", said)
    with styled():
        figure.kind.draw(numbers, sheet)
        picture = sheet.save(out / f"{figure.name}.png")
    csv = out / f"{figure.name}.csv"
    numbers.write_csv(csv, float_precision=6)
    return Made(figure.name, picture, csv, said)


def _embedded(figure: Embedded, asked: Asked, out: Path, path: Path | None, progress: Progress) -> Made:
    """A figure of the report on embeddings, drawn by its own lab."""
    from tacit.lab import embedding

    if asked.data.name not in embedding.DATA:
        raise DataError(
            f"{figure.name} is about embeddings of {', '.join(embedding.DATA)}: take one of these as --data"
        )
    small = asked.scale == "small"
    folder = out / "embedding"
    folder.mkdir(parents=True, exist_ok=True)
    rows = min(_SMALL[0], len(asked.data.train) + len(asked.data.test)) if small else None
    found = embedding.run(
        data=asked.data.name, out=folder, path=path, only=[figure.inner], rows=rows,
        epochs=asked.epochs or (_SMALL[1] if small else None), device=asked.device, seed=asked.seed, progress=progress,
    )  # fmt: skip
    picture = folder / f"{figure.inner}.png"
    return Made(figure.name, picture, None, found.said[figure.inner])


def _title(name: str) -> str:
    paper, _, rest = name.partition("-")
    if paper not in PAPERS:
        raise UsageError(f"{name!r} begins with no paper: they are {', '.join(PAPERS)}")
    return f"{paper} {rest.replace('-', ' ')}"


def _summary(path: Path, data: str, of: str, made: Sequence[Made]) -> None:
    """One page with every picture and every sentence."""
    lines = [f"# The papers' figures on {data}", "", f"Runs of our own: {of}.", ""]
    for one in made:
        lines += [f"## {_title(one.name)}: {FIGURES[one.name].shows}", ""]
        if one.picture is not None:
            lines += [f"![{one.name}]({one.picture.relative_to(path.parent)})", ""]
        lines += [f"- **{said.verdict}**: {said.text} Here: {said.found}." for said in one.said]
        lines += [f"Not drawn: {one.skipped}."] if one.skipped else []
        lines += [""]
    path.write_text("\n".join(lines))


def counted(made: Sequence[Made]) -> Mapping[str, int]:
    """How many sentences agree and how many differ."""
    verdicts = [said.agrees for one in made for said in one.said]
    return {"agree": verdicts.count(True), "differ": verdicts.count(False)}
