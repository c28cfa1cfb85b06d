"""The command line: thin, it composes and decides nothing. Heavy things are imported where they are used."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit._version import __version__
from tacit.errors import TacitError, UsageError

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from tacit.bench import Result
    from tacit.config import Contract
    from tacit.lab.demo import Row

app = typer.Typer(
    name="tacit",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def tacit(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Split learning that attacks itself while it trains, and keeps the leak under a limit.

    Exit codes: 0 done, 1 a finding or a broken limit, 2 wrong use.
    """


_Folder = Annotated[Path, typer.Option("--folder", help="The party's folder.", metavar="DIR")]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where to make it; it may hold data already.", metavar="DIR")],
    role: Annotated[
        Literal["label", "features"],
        typer.Option(help="`label` has the column to be learnt, `features` has columns that help."),
    ],
    name: Annotated[str | None, typer.Option(help="Of the party. [default: the folder's name]")] = None,
) -> None:
    """Make a party's folder: keys, a certificate, and a commented party.toml.

    Example: `tacit init --role label airline`. Keys stay in the folder; nothing that exists is overwritten.
    """
    from tacit.party.folder import create
    from tacit.wire.certificates import fingerprint

    made = create(folder, role=role, name=name)
    own = made.identity
    others = "feature parties" if role == "label" else "label party"
    typer.echo(
        f"{own.name}: {made.path} is ready, with the role {role!r}.\n"
        f"  {made.path / 'party.toml'}: settings of this party, to be filled in\n"
        f"  {made.path / f'{own.name}.crt'}: certificate, for the others\n"
        f"  {made.path / 'keys'}: private, never to leave this machine\n"
        f"\nFingerprint of the certificate:\n{_groups(fingerprint(own.cert_pem))}\n"
        "\nNext:\n"
        f"  1. Send {own.name}.crt to the {others}, and read the fingerprint out on the phone.\n"
        f"  2. tacit trust PEER.crt --folder {made.path}\n"
        f"  3. Fill in party.toml.\n"
        f"  4. Agree on one contract: tacit contract --new --folder {made.path}"
    )


@app.command()
def trust(
    certificate: Annotated[Path, typer.Argument(help="The file that the peer sent.", metavar="PEER.crt")],
    folder: _Folder = Path(),
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of another one of that name.")] = False,
) -> None:
    """Pin a peer's certificate: from now on this one, and no other, is that peer.

    Example: `tacit trust airport.crt --folder airline`. Compare the fingerprint with the peer on the phone: it is what
    makes sure that nobody stands in between.
    """
    from tacit.party.folder import Folder

    found = Folder(folder).trust(certificate, replace=replace)
    typer.echo(
        f"{found.name} is trusted, until {found.not_after:%Y-%m-%d}.\n"
        f"\nIts fingerprint, to be compared on the phone:\n{_groups(found.fingerprint)}"
    )


@app.command()
def contract(
    folder: _Folder = Path(),
    new: Annotated[bool, typer.Option("--new", help="Write a commented contract.toml to start from.")] = False,
) -> None:
    """Show what was agreed on, with the digest that must be equal on all sides.

    Examples: `tacit contract --new --folder airline` writes a draft with the names that are trusted there;
    `tacit contract --folder airline` shows it. All parties have the same contract.toml.
    """
    from tacit.party.folder import Folder

    opened = Folder(folder)
    if new:
        typer.echo(f"{opened.draft_contract()} is written: fill it in, and give it to all parties.\n")
    agreed = opened.contract
    _print_contract(agreed)
    try:
        opened.check_pair(agreed)
    except TacitError as error:
        typer.echo(f"\nNot ready yet: {error}")
    else:
        typer.echo(f"\n{opened.config.name} is ready for it.")


@app.command()
def demo(
    epochs: Annotated[int, typer.Option(min=1, help="How often every flight is visited.")] = 3,
    rows: Annotated[int | None, typer.Option(min=4096, help="Use only so many flights. [default: all]")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, batches, noise and attacks.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the table as DIR/demo.json.", metavar="DIR")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Train one model under four protections, attack it in every way, and show what leaked.

    An airport (weather, time) and an airline (aircraft, route) learn together which flights of 2013 arrive an hour
    late. Only the airline knows which did. The table says how good the model became under each protection, and how
    well each attack tells late flights from punctual ones by looking at the gradients that the airport received: 0.5
    is a coin flip, 1.0 is an open book. Takes about a minute.
    """
    from tacit.lab.demo import run

    if out is not None:
        _make_folder(out)
    with _progress(quiet=as_json) as bar:
        task = bar.add_task("loading flights", total=None)

        def show(what: str, done: int, steps: int) -> None:
            bar.update(task, description=what, completed=done, total=steps)

        table = run(epochs=epochs, rows=rows, seed=seed, progress=show)
    document = {"epochs": epochs, "seed": seed, "version": __version__, "rows": [row.as_dict() for row in table]}
    if out is not None:
        (out / "demo.json").write_text(json.dumps(document, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    else:
        _print_demo(table)


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Benchmarks to run. [default: all]", metavar="NAME")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of the table.")] = False,
) -> None:
    """Measure speed, as ratios side by side in one run: attack, protect, solver, step.

    A ratio of 1.2x means 1.2 times as long as what it is compared with. Where a goal is set, a figure that misses it
    is marked, and the exit code is 1.
    """
    import tacit.bench as benchmarks

    results = []
    with _progress(quiet=as_json) as bar:
        task = bar.add_task("", total=None)
        for name in names or benchmarks.names():
            bar.update(task, description=f"bench {name}")
            results += list(benchmarks.run(name))
    if as_json:
        typer.echo(json.dumps([result.as_dict() for result in results], indent=2))
    else:
        _print_bench(results)
    if any(result.holds is False for result in results):
        raise typer.Exit(1)


def _make_folder(path: Path) -> None:
    """A folder for results, before there are any: a path that can't be one is said at once, not after the work."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {path} can't be made a folder ({error.strerror}): choose another path") from None


def _groups(text: str) -> str:
    """A long digest on two lines of groups, to be read out."""
    digits = text.replace(":", "")
    groups = [digits[place : place + 4] for place in range(0, len(digits), 4)]
    return "\n".join("  " + " ".join(groups[place : place + 8]) for place in range(0, len(groups), 8))


def _print_contract(agreed: Contract) -> None:
    cuts = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in agreed.cut.widths.items())
    lines = {
        "run": agreed.run,
        "label party": agreed.label_party,
        "feature parties": ", ".join(agreed.feature_parties),
        "cut": f"{cuts}, {agreed.cut.dtype}",
        "training": f"{agreed.epochs} epochs of batches of {agreed.batch_size}, loss {agreed.loss}",
        "test rows": f"{agreed.test_share:.0%} of the common ones",
        "ids of a side": f"{agreed.alignment.smallest_set:,} to {agreed.alignment.largest_set:,}",
        "least protection": str(agreed.minimum.gradient),
        "told at epoch ends": ", ".join(agreed.share.metrics) or "nothing",
    }
    for what, value in lines.items():
        typer.echo(f"{what:<20}{value}")
    typer.echo(f"\nDigest, which must be equal on all sides:\n{_groups(agreed.digest)}")


def _progress(*, quiet: bool) -> Progress:
    """A progress bar on the error stream, so that what is piped on is the result alone."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description:<46}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=quiet,
    )


def _leak(value: float) -> str:
    """A leak AUC in the colour of its danger; the number says it as well."""
    colour = "green" if value < 0.6 else "yellow" if value < 0.75 else "red"
    return f"[{colour}]{value:.3f}[/{colour}]"


def _print_demo(rows: list[Row]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title="What the airport can tell from the gradients it received (leak AUC)")
    table.add_column("attack", no_wrap=True)
    for row in rows:
        name, _, options = row.protection.removesuffix(")").partition("(")
        table.add_column(f"{name}\n{options}", justify="right", overflow="fold")
    for i, finding in enumerate(rows[0].findings):
        here = [row.findings[i] for row in rows]
        table.add_row(finding.attack, *(_leak(one.leak.value) for one in here))
        if finding.baseline is not None and finding.baseline != finding.leak:
            table.add_row("  (embedding alone)", *(f"{one.baseline.value:.3f}" for one in here if one.baseline))
    table.add_section()
    table.add_row("[bold]worst attack", *(f"[bold]{row.worst.attack}" for row in rows))
    table.add_row("[bold]its leak AUC", *(f"[bold]{_leak(row.worst.leak.value)}" for row in rows))
    table.add_section()
    table.add_row("test AUC of the model", *(f"{row.test_auc:.3f}" for row in rows))
    table.add_row("noise over gradient", *(f"{row.noise:.0f}x" for row in rows))
    console = Console()
    console.print(table)
    console.width = min(console.width, 100)
    console.print(
        "0.5 is a coin flip, 1.0 an open book. Without protection every attack reads the labels. max_norm and"
        " marvell blunt the attacks they were made for (norm, cosine) while others read on: under marvell the energy"
        " outside the leading directions (residual, which needs no label) gives everything away. matched leaves no"
        " attack much. spectral and contextual look at the airport's own embeddings: what those give away without any"
        " gradient is what the model has learned about flights, not a leak of the gradients, and does not count as"
        " the worst attack.",
        highlight=False,
    )


def _print_bench(results: list[Result]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table: Table = Table(box=box.SIMPLE_HEAD)
    for name in ("bench", "case"):
        table.add_column(name)
    for name in ("value", "goal", ""):
        table.add_column(name, justify="right")
    for result in results:
        goal = "" if result.goal is None else f"{result.goal:.3g} {result.unit}"
        mark = {None: "", True: "[green]holds", False: "[red]missed"}[result.holds]
        table.add_row(result.bench, result.case, f"{result.value:.3g} {result.unit}", goal, mark)
    Console().print(table)


def main() -> None:
    """The `tacit` command: a user's mistake is one line on the error stream and exit code 2, never a traceback."""
    try:
        app()
    except TacitError as error:
        typer.echo(f"tacit: {error}", err=True)
        sys.exit(2)
