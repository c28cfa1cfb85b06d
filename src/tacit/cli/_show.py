"""What several commands show alike: answers, tables, digests, leaks, reports.

Tables fit the terminal: lines are broken between words, figures and names never; else a table has parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tacit.errors import TacitError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from tacit.company.plans import Plan
    from tacit.lab.trial import Trial
    from tacit.report.document import Report

_LONGEST = 30  # a word up to here is never broken
_SHORTEST = 8  # what is left of a column of words on the smallest screen


def tell(document: object, brief: str, words: str, *, as_json: bool, quiet: bool) -> None:
    """Say something in one of three forms: as JSON, in brief, or in words with advice."""
    typer.echo(json.dumps(document) if as_json else brief if quiet else words)


def make_folder(path: Path) -> None:
    """A folder for results, before there are any: a path that can't be one is said at once, not after the work."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {path} can't be made a folder ({error.strerror}): choose another path") from None


@contextmanager
def making_folder(path: Path) -> Iterator[None]:
    """The same, and where a mistake ends what is done in here, a folder that was made for it goes again."""
    new = not path.exists()
    make_folder(path)
    try:
        yield
    except TacitError:
        if new and not any(path.iterdir()):
            path.rmdir()
        raise


def print_plan(title: str, plan: Plan) -> None:
    """What would be sent, each sentence on lines of its own."""
    from rich.markup import escape
    from rich.padding import Padding

    screen = console(110)
    screen.print(f"\n[bold]{escape(title)}[/bold]")
    for words in plan.sent:
        screen.print(Padding(escape(plain(words)), (0, 0, 0, 2)))
    for words in plan.warnings:
        screen.print(Padding(f"[red]{escape(plain(words))}[/red]", (0, 0, 0, 2)))


def groups(text: str) -> str:
    """A long digest on two lines of groups, to be read out."""
    digits = text.replace(":", "")
    groups = [digits[place : place + 4] for place in range(0, len(digits), 4)]
    return "\n".join("  " + " ".join(groups[place : place + 8]) for place in range(0, len(groups), 8))


def plain(text: object) -> str:
    """What came from outside, with a "?" for everything that would move a cursor or begin a new line."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def figures(line: Mapping[str, float]) -> str:
    """The figures of an epoch, in one line."""
    return ", ".join(f"{name} {value:.4f}" for name, value in line.items() if name != "epoch")


def leak(value: float) -> str:
    """A leak AUC in the colour of its danger; the number says it as well."""
    colour = "green" if value < 0.6 else "yellow" if value < 0.75 else "red"
    return f"[{colour}]{value:.3f}[/{colour}]"


def attack_rows(trials: Sequence[Trial]) -> list[list[str] | None]:
    """What every attack reached in each of some trials, and beside it what embeddings alone would have told."""
    rows: list[list[str] | None] = []
    for finding in trials[0].findings:
        here = [{other.attack: other for other in one.findings}.get(finding.attack) for one in trials]
        rows.append([finding.attack, *("" if one is None else leak(one.leak.value) for one in here)])
        if finding.baseline is not None and finding.baseline != finding.leak:
            alone = [None if one is None else one.baseline for one in here]
            rows.append(["  (embedding alone)", *("" if one is None else f"{one.value:.3f}" for one in alone)])
    return rows


def print_report(report: Report, paths: tuple[Path, Path]) -> None:
    """A table of what each attack reached, the worst one last; what was not tried; and whether a limit holds."""
    from rich.markup import escape

    about = "labels" if report.subject.side == "features" else "columns"
    known = any(one.baseline is not None for one in report.leaks)
    head = ["attack", "on", "leak AUC" if about == "labels" else "read", "95% interval"]
    rows: list[list[str] | None] = []
    for one in report.leaks:
        before = "" if one.baseline is None else f"{one.baseline:.3f}"
        value = leak(one.value) if one.measure != "variance_read" else f"{one.value:.3f}"
        rows.append([escape(one.attack), one.on, value, f"{one.low:.3f} to {one.high:.3f}", before])
    if report.worst is not None:
        rows.append(None)
        rows.append([f"[bold]worst: {escape(report.worst.attack)}", "", f"[bold]{report.worst.value:.3f}", "", ""])
    cut = len(head) + known
    print_table(
        f"What the receiver could tell about {about}",
        [*head, "without\nmessages"][:cut],
        [None if row is None else row[:cut] for row in rows],
    )
    for missing in report.not_tested:
        typer.echo(plain(f"not tested: {missing.what} ({missing.why})"))
    if known:
        typer.echo("without messages: what the attack reads off the receiver's own side; only what is above it counts")
    typer.echo(_words(report))
    typer.echo(f"The report is {paths[1]}, and {paths[0].name} beside it for programs")


_REMEDY = {
    "run": "set limit in party.toml, or give one to `tacit audit` with --limit",
    "files": "give one with --limit",
}


def _words(report: Report) -> str:
    from tacit.company.verdict import passed

    if report.limit is None:
        return f"No limit was given, so nothing is judged: {_REMEDY[report.subject.kind]}"
    over = passed(report.leaks, report.limit)
    if over:
        return f"The limit {report.limit:g} is broken, by {', '.join(dict.fromkeys(one.attack for one in over))}"
    if report.verdict == "broken":
        return f"The limit {report.limit:g} was broken while the training ran; the report says when"
    if report.verdict == "held":
        return f"The limit {report.limit:g} holds against everything that was tried"
    return f"Whether the limit {report.limit:g} holds could not be judged: see what was not tested"


# --- tables ----------------------------------------------------------------------------------------------------------


def console(most: int | None = None) -> Console:
    """The terminal, as wide as it is or at most so wide; numbers keep the colour that they are given."""
    from rich.console import Console

    made = Console(highlight=False)
    if most is not None:
        made.width = min(made.width, most)
    return made


def narrow(spelled: str) -> str:
    """An attack or protection, as a cell, with its options on lines of their own, for a narrow column."""
    from rich.markup import escape

    return escape(spelled).replace("(", "\n(").replace(", ", ",\n")


def print_table(
    title: str | None, head: Sequence[str], rows: Sequence[Sequence[str] | None], *, words: Sequence[int] = (0,),
    on: Console | None = None,
) -> None:  # fmt: skip
    """Print a table; where its columns do not fit beside each other, as several that all begin with the first one.

    Cells may hold markup; a row of None is a line between two parts. `words` are the places of columns whose cells are
    words, on as many lines as it takes; all others hold figures.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    screen = on or console()
    first, *rest = range(len(head))
    widths, least = dict[int, int](), dict[int, int]()
    for place, name in enumerate(head):
        cells = [name, *(row[place] for row in rows if row)]
        lines = [line for cell in cells for line in Text.from_markup(cell).plain.split("\n")]
        widths[place] = least[place] = max(map(cell_len, lines))
        if place in words:  # no narrower than the longest word, unless that is longer than any should be
            found = [word for cell in cells for word in Text.from_markup(_loose(cell)).plain.split()]
            least[place] = min(_LONGEST, max(map(cell_len, found), default=1))

    def spare(given: dict[int, int], places: Sequence[int]) -> int:
        """What these columns leave of the screen, with their lines and margins; below 0 where they do not fit."""
        return screen.width - 1 - sum(given[place] + 3 for place in places)

    parts: list[list[int]] = [[]]
    for place in rest:
        if parts[-1] and spare(least, (first, *parts[-1], place)) < 0:
            parts.append([])
        parts[-1].append(place)
    for number, part in enumerate(parts):
        places, given = [first, *part], dict(least)
        made = Table(box=box.SIMPLE_HEAD, title=title if number == 0 else None)
        for place in places:  # what is left goes to the words, from the left; what is missing on a tiny screen, too
            if place in words:
                more = min(widths[place] - least[place], spare(given, places))
                given[place] = max(min(_SHORTEST, least[place]), given[place] + more)
                made.add_column(head[place], overflow="fold", width=given[place])
            else:
                made.add_column(head[place], justify="right", no_wrap=True)
        for row in rows:
            if row is None:
                made.add_section()
            else:
                made.add_row(*(row[at] if given[at] == widths[at] else _loose(row[at]) for at in places))
        screen.print(made)


def _loose(cell: str) -> str:
    """Names with places to break them at: before their options, and between these."""
    return re.sub(r"(?<=\w)\((?=\w)", " (", re.sub(r",(?=[a-z])", ", ", cell))
