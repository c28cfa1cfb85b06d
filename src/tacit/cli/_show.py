"""What several commands show alike: progress, digests, leaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress

    from tacit.audit.run import Finding
    from tacit.party.auditing import ReadInputs

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


def print_findings(findings: Sequence[Finding], title: str) -> None:
    """A table of what each attack reached, the worst one last."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from tacit.audit.run import worst

    table = Table(box=box.SIMPLE_HEAD, title=title)
    table.add_column("attack", no_wrap=True)
    table.add_column("leak AUC", justify="right")
    table.add_column("95% interval", justify="right")
    for one in findings:
        alone = one.baseline is not None and one.baseline != one.leak
        note = f"  (embedding alone: {one.baseline.value:.3f})" if alone and one.baseline is not None else ""
        table.add_row(one.attack + note, leak(one.leak.value), f"{one.leak.low:.3f} to {one.leak.high:.3f}")
    most = worst(findings)
    table.add_section()
    table.add_row(f"[bold]worst: {most.attack}", f"[bold]{leak(most.leak.value)}", "")
    Console().print(table)


def print_read(found: ReadInputs, title: str) -> None:
    """A table of what each decoder read of the inputs, the worst one last."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title)
    table.add_column("attack", no_wrap=True)
    table.add_column("read", justify="right")
    table.add_column("95% interval", justify="right")
    for one in found.findings:
        if one.relative is not None:
            read, low, high = (1 - value for value in (one.relative.value, one.relative.high, one.relative.low))
            table.add_row(one.attack, f"{max(0.0, read):.1%}", f"{max(0.0, low):.1%} to {max(0.0, high):.1%}")
    console = Console()
    console.print(table)
    console.width = min(console.width, 100)
    console.print(
        "Read: the part of the columns' variance that a decoder finds which knows half of the rows and is judged on"
        f" the others. Distance correlation of columns and embeddings in batches of {found.batch_size}:"
        f" {found.dependence}.",
        highlight=False,
    )
