"""Options that several verbs share: one name, one meaning, one default, one help text."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from tacit.errors import UsageError
from tacit.plugins import names

if TYPE_CHECKING:
    from tacit.lab.data.rows import Data
    from tacit.progress import Progress


def flag(told: str, *names: str, **more: Any) -> Any:
    """An option that is there or not; its help text says what it then means."""
    return typer.Option(*names, help=told, metavar="", **more)


def option(told: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """An option with a value, which the help calls by a word; None where all values are listed."""
    return typer.Option(*names, help=told, metavar=metavar, **more)


def argument(told: str, metavar: str) -> Any:
    """What stands behind the verb without a name."""
    return typer.Argument(help=told, metavar=metavar, show_default=False)


# --- names that the shell completes, listed without importing what they name ------------------------------------------

protections = functools.partial(names, "tacit.split.protect.gradient")
attacks = functools.partial(names, "tacit.audit.attacks")


def data_sets() -> list[str]:
    """Those that the lab knows by name."""
    from tacit.lab.data import SOURCES

    return sorted(SOURCES)


def complete(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What typer asks for the values of an option that takes one of these names."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def complete_list(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """The same for an option that takes several, with commas between them."""

    def found(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = before.split(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last) and name not in taken]

    return found


# --- of every verb ---------------------------------------------------------------------------------------------------

Json = Annotated[bool, flag("Print one JSON document instead of tables and words.", "--json")]
Quiet = Annotated[bool, flag("No progress and no advice, only the result.", "--quiet", "-q")]

# --- of the verbs of a party -----------------------------------------------------------------------------------------

Folder = Annotated[Path | None, option("The party's folder. [default: here]", "DIR", "--folder")]
Where = Annotated[Path | None, argument("The party's folder, as with --folder.", "DIR")]
Run = Annotated[Path | None, argument("A run's folder, or that of a party with one run.", "RUN")]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _seconds(given: str | float) -> float:
    """A time such as 90s, 10m, 2h or 1d in seconds."""
    number, unit = str(given)[:-1], str(given)[-1:]
    with suppress(ValueError):
        if unit in _UNITS and 0 < float(number) < math.inf:
            return float(number) * _UNITS[unit]
    raise typer.BadParameter(f"{given!r} is no time: write 90s, 10m, 2h or 1d")


Wait = Annotated[
    float | None,
    option(
        "Give up where a party is not there for so long, with exit code 75. [default: never]", "TIME", parser=_seconds
    ),
]


def patience(wait: float | None) -> float:
    """Seconds for which a party may be missing."""
    return math.inf if wait is None else wait


Override = Annotated[str | None, option("Use a model though its limit is broken: who answers for it.", "NAME")]
Reason = Annotated[str | None, option("Why; it stays on record and in the report.", "WHY")]


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
    argument("Folders of parties or runs, or any above them. [default: runs, or here]", "RUNS"),
]


def run_folders(given: list[Path] | None) -> list[Path]:
    """The folders that were named, or the one under which runs are usually kept."""
    if not given:
        return [Path("runs") if Path("runs").is_dir() else Path()]
    for path in given:
        if not path.is_dir():
            what = "is no folder" if path.exists() else "does not exist"
            raise UsageError(f"{path} {what}: name the folder of a party or a run, or one above them")
    return given


# --- of the verbs of the lab -----------------------------------------------------------------------------------------

_NAMES = complete(lambda: [*data_sets(), *(f"generated:{name}" for name in data_sets())])
_DEVICES = complete(lambda: ["auto", "cpu", "cuda"])
Protect = Annotated[
    str,
    option(
        "Names, as iso,marvell:sum_kl or matched(leak_auc=0.6,visits=5).",
        "A,B",
        autocompletion=complete_list(protections),
    ),
]
Seeds = Annotated[int, option("With how many seeds each setting runs.", "N", min=1)]
_NAMED = "A data set by name, generated:NAME, or a .toml that describes your own files."


@dataclass(frozen=True)
class Lab:
    """What is trained on which data; each field is an option of the verbs of the lab."""

    data: Annotated[str, option(_NAMED, "NAME", autocompletion=_NAMES)] = "flights"
    folder: Annotated[Path | None, option("Where the data set's files are.", "DIR", "--folder")] = None
    rows: Annotated[int | None, option("Use only so many rows. [default: all]", "N", min=100)] = None
    sample: Annotated[
        float | None, option("Use a share of the rows, drawn at random. [default: all]", "SHARE", min=0.0, max=1.0)
    ] = None
    cache: Annotated[
        Path | None, option("Where large data sets are kept once read. [default: beside their files]", "DIR")
    ] = None
    protect: Protect = "iso,max_norm,marvell,matched"
    seeds: Seeds = 1
    batch_size: Annotated[int | None, option("Rows of a batch. [default: the papers', or 1024]", "N", min=2)] = None
    learning_rate: Annotated[float | None, option("Of Adam. [default: the papers', or 0.001]", "RATE")] = None
    bottom_rate: Annotated[float | None, option("Of the bottom's Adam. [default: that of the top]", "RATE")] = None
    device: Annotated[str, option("cpu, cuda, or auto: CUDA where there is one.", "NAME", autocompletion=_DEVICES)] = (
        "auto"
    )

    def load(self, show: Progress) -> Data:
        """The data set, with a bar while it is read."""
        from tacit.lab.data import load

        return load(
            self.data, folder=self.folder, rows=self.rows, sample=self.sample, cache=self.cache,
            progress=lambda done, total: show(f"loading {self.data}", done, total),
        )  # fmt: skip

    @property
    def protections(self) -> list[str]:
        """The protections of `--protect`, of which there must be one."""
        from tacit.lab.sweeping.settings import split_names

        names = split_names(self.protect)
        if not names:
            raise UsageError("--protect names no protection: give one or more, as iso,marvell, or none")
        return names

    def usual(self, kind: str) -> Path:
        """Where results go if nobody says where."""
        return Path("runs") / f"{kind}-{Path(self.data).stem.replace(':', '-')}"


def spread(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb whose options stand in dataclasses: typer sees each of their fields as an option of the verb itself."""
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
