"""What several commands show alike: progress, digests, leaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress

    from tacit.report.document import Leak, Report

Folder = Annotated[Path, typer.Option("--folder", help="The party's folder.", metavar="DIR")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables and words.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]


def make_folder(path: Path) -> None:
    """A folder for results, before there are any: a path that can't be one is said at once, not after the work."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {path} can't be made a folder ({error.strerror}): choose another path") from None


def groups(text: str) -> str:
    """A long digest on two lines of groups, to be read out."""
    digits = text.replace(":", "")
    groups = [digits[place : place + 4] for place in range(0, len(digits), 4)]
    return "\n".join("  " + " ".join(groups[place : place + 8]) for place in range(0, len(groups), 8))


def plain(text: object) -> str:
    """What came from outside, with a "?" for everything that would move a cursor or begin a new line."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def progress_bar(*, quiet: bool) -> Progress:
    """A progress bar on the error stream, so that what is piped on is the result alone."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description:<46}", markup=False),  # it may hold a peer's words
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=quiet,
    )


def leak(value: float) -> str:
    """A leak AUC in the colour of its danger; the number says it as well."""
    colour = "green" if value < 0.6 else "yellow" if value < 0.75 else "red"
    return f"[{colour}]{value:.3f}[/{colour}]"


@contextmanager
def one_bar(*, quiet: bool, first: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar with one line; call what it gives with a description, the part that is done and the whole."""
    with progress_bar(quiet=quiet) as bar:
        task = bar.add_task(first, total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        yield show


def print_report(report: Report, paths: tuple[Path, Path]) -> None:
    """A table of what each attack reached, the worst one last; what was not tried; and whether a limit holds."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    about = "labels" if report.subject.side == "features" else "columns"
    table = Table(box=box.SIMPLE_HEAD, title=f"What the receiver could tell about {about}")
    table.add_column("attack", overflow="fold")
    table.add_column("on", no_wrap=True)
    table.add_column("leak AUC" if about == "labels" else "read", justify="right", no_wrap=True)
    table.add_column("95% interval", justify="right", no_wrap=True)
    known = any(one.baseline is not None for one in report.leaks)
    if known:
        table.add_column("without\nmessages", justify="right", no_wrap=True)
    for one in report.leaks:
        before = "" if one.baseline is None else f"{one.baseline:.3f}"
        row = (escape(one.attack), one.on, _figure(one), f"{one.low:.3f} to {one.high:.3f}")
        table.add_row(*row, *([before] if known else []))
    if report.worst is not None:
        table.add_section()
        table.add_row(f"[bold]worst: {escape(report.worst.attack)}", "", f"[bold]{report.worst.value:.3f}")
    Console().print(table)
    for missing in report.not_tested:
        typer.echo(plain(f"not tested: {missing.what} ({missing.why})"))
    typer.echo(_words(report))
    typer.echo(f"The report is {paths[1]}, and {paths[0].name} beside it for programs")


_REMEDY = {
    "run": "set limit in party.toml, or give one to `tacit audit` with --limit",
    "files": "give one with --limit",
}


def _figure(one: Leak) -> str:
    return leak(one.value) if one.measure != "variance_read" else f"{one.value:.3f}"


def _words(report: Report) -> str:
    from tacit.party.reporting import passed

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
