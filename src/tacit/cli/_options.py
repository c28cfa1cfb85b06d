"""Options that several verbs share: one name, one meaning, one default, one help text."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from tacit.cli._names import attacks, complete, complete_list, data_sets, protections
from tacit.errors import UsageError

# --- of every verb ---------------------------------------------------------------------------------------------------

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables and words.", metavar="")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no advice, only the result.", metavar="")]

# --- of the verbs of a party -----------------------------------------------------------------------------------------

Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="The party's folder. [default: here]", metavar="DIR", show_default=False),
]
Where = Annotated[
    Path | None, typer.Argument(help="The party's folder, as with --folder.", metavar="DIR", show_default=False)
]
Run = Annotated[
    Path | None,
    typer.Argument(help="A run's folder, or that of a party with one run.", metavar="RUN", show_default=False),
]

Override = Annotated[
    str | None, typer.Option(help="Use a model though its limit is broken: who answers for it.", metavar="NAME")
]
Reason = Annotated[str | None, typer.Option(help="Why; it stays on record and in the report.", metavar="WHY")]


def party_folder(given: Path | None, folder: Path | None) -> Path:
    """The folder that was named, in one of two ways, or the one we are in."""
    if given is not None and folder is not None:
        raise UsageError(f"{given} and --folder {folder} say the same: give one of them")
    return given or folder or Path()


def party_of(given: Path | None, folder: Path | None) -> Path:
    """The same for verbs that are about a whole party: a run's folder stands for that of its party."""
    path = party_folder(given, folder)
    inside = path.resolve().parent.name == "runs" and not (path / "party.toml").exists()
    return path.resolve().parent.parent if inside else path


# --- of the verbs that show runs -------------------------------------------------------------------------------------

Runs = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Folders of parties, runs or sweeps, or any above them. [default: runs, or here]",
        metavar="RUNS",
        show_default=False,
    ),
]


def run_folders(given: list[Path] | None) -> list[Path]:
    """The folders that were named, or the one under which runs are usually kept."""
    if not given:
        return [Path("runs") if Path("runs").is_dir() else Path()]
    for path in given:
        if not path.is_dir():
            what = "is no folder" if path.exists() else "does not exist"
            raise UsageError(f"{path} {what}: name the folder of a party, a run or a sweep, or one above them")
    return given


# --- of the verbs of the lab -----------------------------------------------------------------------------------------

Name = Annotated[
    str,
    typer.Option(
        help="A data set by name, generated:NAME, or a .toml that describes your own files.",
        metavar="NAME",
        autocompletion=complete(lambda: [*data_sets(), *(f"generated:{name}" for name in data_sets())]),
    ),
]
DataFolder = Annotated[
    Path | None,
    typer.Option("--folder", help="Where the data set's files are.", metavar="DIR", show_default=False),
]
Rows = Annotated[int | None, typer.Option(min=100, help="Use only so many rows. [default: all]", metavar="N")]
Protect = Annotated[
    str,
    typer.Option(
        help="Names, as iso,marvell:sum_kl or matched(leak_auc=0.6,visits=5).",
        metavar="A,B",
        autocompletion=complete_list(protections),
    ),
]
Epochs = Annotated[int, typer.Option(min=1, help="How often every row is visited.", metavar="N")]
Seeds = Annotated[int, typer.Option(min=1, help="With how many seeds each setting runs.", metavar="N")]
Seed = Annotated[int, typer.Option(help="Of test rows, weights, batches, noise and attacks.", metavar="N")]
BatchSize = Annotated[
    int | None, typer.Option(min=2, help="Rows of a batch. [default: the papers', or 1024]", metavar="N")
]
Rate = Annotated[
    float | None, typer.Option("--learning-rate", help="Of Adam. [default: the papers', or 0.001]", metavar="RATE")
]
Attacks = Annotated[
    str | None,
    typer.Option(
        help="What is tried on every batch. [default: norm,cosine,hint]",
        metavar="A,B",
        show_default=False,
        autocompletion=complete_list(attacks),
    ),
]
Bad = Annotated[
    Literal["raise", "skip"], typer.Option(help="Stop at a row that can't be read, or leave it out and count it.")
]
Cache = Annotated[
    Path | None,
    typer.Option(
        help="Where large data sets are kept once read. [default: beside their files]",
        metavar="DIR",
        show_default=False,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="cpu, cuda, or auto: CUDA where there is one.",
        metavar="NAME",
        autocompletion=complete(lambda: ["auto", "cpu", "cuda"]),
    ),
]


def spread(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb whose options stand in dataclasses: typer sees each of their fields as an option of the verb itself.

    Args:
        verb: a function; of each argument that is a dataclass the fields take its place.
    """
    hints = get_type_hints(verb, include_extras=True)
    options: list[inspect.Parameter] = []
    fields: dict[str, list[str]] = {}
    for name, argument in inspect.signature(verb).parameters.items():
        whole = is_dataclass(hints[name])
        group = inspect.signature(hints[name]).parameters.values() if whole else [argument]
        kinds = get_type_hints(hints[name], include_extras=True) if whole else hints
        options += [
            option.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kinds[option.name]) for option in group
        ]
        if whole:
            fields[name] = [option.name for option in group]

    @functools.wraps(verb)
    def called(**given: Any) -> None:
        whole = {name: hints[name](**{field: given.pop(field) for field in some}) for name, some in fields.items()}
        verb(**whole, **given)

    called.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    called.__annotations__ = {option.name: option.annotation for option in options}
    del called.__wrapped__
    return called
