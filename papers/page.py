"""What docs/ref-papers.md says of the papers, of every figure, and of what is claimed and found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from papers.bibliography import PAPERS, paper_of
from papers.claims import Claim, claims
from papers.claims.bench import EMBEDDINGS, SCALES, real_name
from papers.claims.measures import MEASURES
from papers.claims.record import read
from papers.making import title
from papers.registry import FIGURES, Drawn, Embedded, Figure

__all__ = ["COLUMNS", "THUMBNAILS", "Row", "rows", "run_of", "tables"]

THUMBNAILS = Path(__file__).parents[1] / "docs" / "images" / "papers"
"""Our pictures, small."""


class Row(NamedTuple):
    """A figure as the page and `--list` have it."""

    name: str
    cited: str
    shows: str
    command: str
    data: str
    time: str
    differs: str
    claims: str


COLUMNS = ("name", "figure", "shows", "command", "data", "time", "differs", "claims that hold")
"""Heads of the table of figures, but for the picture."""


def _diagram(name: str, shows: str, differs: str) -> Row:
    return Row(name, title(name), shows, "", "none", "", differs, "")


DIAGRAMS = (
    _diagram("000-table-1", "notation", "under What is called what"),
    _diagram("001-figure-1", "the framework: four modules around the embedding", "drawn anew: a diagram"),
    _diagram("001-table-1", "notation", "under What is called what"),
    _diagram("002-figure-1", "two-party split training", "drawn anew: a diagram"),
    _diagram("003-table-1", "notation", "under What is called what"),
    _diagram("004-figure-1", "two-party split training and its threat model", "drawn anew: a diagram"),
)
"""What the papers explain themselves with: nothing is trained for it."""

_IMAGES = {
    "001-figure-1": "embedding-frame.svg",
    "002-figure-1": "leaks-overview.svg",
    "004-figure-1": "leaks-overview.svg",
}


def rows() -> list[Row]:
    """Every figure and table, what is drawn by a command and what the papers explain themselves with."""
    kept = read()
    return sorted([*(_row(figure, kept) for figure in FIGURES.values()), *DIAGRAMS])


def _row(figure: Figure, kept: Mapping[str, Any]) -> Row:
    about = [claim.name for claim in claims().values() if claim.figure == figure.name]
    verdicts = [kept["claims"][name]["verdict"] for name in about if name in kept["claims"]]
    run, data = run_of(figure)
    seconds = kept["runs"].get(f"{run} on {data}", {}).get("seconds")
    held = [f"{verdicts.count('holds')} of {len(verdicts)}"] if verdicts else []
    held += [f"{len(about) - len(verdicts)} not judged yet"] if len(about) > len(verdicts) else []
    cited = title(figure.name) if paper_of(figure.name) else "ours"
    theirs = figure.data or "none"
    ours = "" if data == theirs else f"{theirs}; {data}"
    return Row(
        figure.name, cited, figure.shows, _command(figure, data), ours or theirs, _time(seconds), figure.deviates,
        ", ".join(held),
    )  # fmt: skip


def _command(figure: Figure, data: str) -> str:
    """What draws it on this data."""
    if data == "toy":
        return f"python -m papers {figure.name}"
    real = real_name(data)
    folder = "" if real == "flights" or real.startswith("generated:") else " --folder DIR"
    rows = SCALES[data if data in SCALES else real].rows
    if isinstance(figure, Embedded):
        rows, epochs = EMBEDDINGS[data]
        return f"python -m papers {figure.name} --data {real}{folder} --rows {rows} --epochs {epochs}"
    return f"python -m papers {figure.name} --data {real}{folder}{'' if rows is None else f' --rows {rows}'}"


def run_of(figure: Figure) -> tuple[str, str]:
    """The training behind our picture, and its data set: that of the claims about it."""
    judged = next((claim for claim in claims().values() if claim.figure == figure.name), None)
    if judged is not None:
        return MEASURES[judged.name].run, judged.data[0]
    if isinstance(figure, Embedded):
        return "embeddings", "flights"
    data = {"criteo": "generated:criteo", "avazu": "generated:avazu", "isic": "skin"}.get(figure.data, "flights")
    return (figure.recipe if isinstance(figure, Drawn) else figure.name), data


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return "under 1 s" if seconds < 1 else f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"


# --- the page --------------------------------------------------------------------------------------------------------


def tables() -> dict[str, str]:
    """What docs/ref-papers.md takes from here, by the names that its tables have there."""
    kept = read()
    return {
        "papers": _bibliography(), "figures": _figures(), "claims": f"{_counts(kept)}\n\n{_claims(kept)}",
        "trainings": _runs(kept),
    }  # fmt: skip


def _bibliography() -> str:
    lines = [
        (f"{one.key}", f"`{one.number}`", one.authors, one.title, f"[{one.where}]({one.link})")
        for one in PAPERS.values()
    ]
    return _grid(("cited as", "names of figures", "authors", "title", "where"), lines)


def _figures() -> str:
    lines = []
    for row in rows():
        drawn = _IMAGES.get(row.name, f"papers/{row.name}.png")
        there = (THUMBNAILS.parent / drawn).exists()
        shown = f'<img src="images/{drawn}" width="240" alt="{row.name}">' if there else ""
        command = f"`{row.command}`" if row.command else "none"
        lines.append((f"`{row.name}`", row.cited, row.shows, command, *row[4:], shown))
    return _grid((*COLUMNS, "our picture"), lines)


def _counts(kept: Mapping[str, Any]) -> str:
    counts = Counter(kept["claims"].get(name, {}).get("verdict") or "not judged yet" for name in claims())
    return f"Of {len(claims())} claims, {', '.join(f'{count} {verdict}' for verdict, count in counts.most_common())}."


def _claims(kept: Mapping[str, Any]) -> str:
    lines = []
    for claim in claims().values():
        found = kept["claims"].get(claim.name, {"verdict": None, "judged": []})
        figures = "; ".join(_judged(claim, line) for line in found["judged"])
        verdict = found["verdict"] or "not judged yet"
        lines.append(
            (f"`{claim.name}`", claim.says, f"{claim.paper}, {claim.place}", figures, f"`{claim.holds}`", verdict)
        )
    return _grid(("claim", "the papers say", "where", "here", "holds if", "verdict"), lines)


def _judged(claim: Claim, line: Mapping[str, Any]) -> str:
    """What was measured on one data set."""
    told = ", ".join(f"{name} {_number(line['numbers'][name])}" for name in claim.numbers)
    return f"{line['data']}: {told}" + (f" ({line['verdict']})" if line["data"] != claim.data[0] else "")


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}" if abs(value) < 0.1 or abs(value) >= 1000 else f"{value:.3f}"


def _runs(kept: Mapping[str, Any]) -> str:
    lines = []
    for name, run in sorted(kept["runs"].items(), key=lambda item: item[0].partition(" on ")[::-1]):
        length = f"{run['updates']} updates" if "updates" in run else str(run.get("epochs", ""))
        share = f"{run['share']:.1%}" if "share" in run else ""
        lines.append(
            (
                name,
                f"{run['rows']:,}",
                share,
                f"{run.get('batch', '')}",
                length,
                str(run.get("seeds", "")),
                str(run["seconds"]),
            )
        )
    return _grid(("training", "rows", "positive", "rows of a batch", "epochs", "seeds", "seconds"), lines)


def _grid(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    table = [head, ["---"] * len(head), *([_cell(one) for one in line] for line in lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in table)


def _cell(text: str) -> str:
    return (
        text.replace("|", "\\|").replace("<=", "&lt;=")
        if not text.startswith(("`", "<img"))
        else text.replace("|", "\\|")
    )
