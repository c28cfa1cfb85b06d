"""The whole examination of somebody else's protection: its contract, and a training that all attacks are tried on.

The contract alone is `tacit.testing`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch

from tacit.audit.input_attacks.decoder import decoder
from tacit.audit.input_attacks.linear_decoder import linear_decoder
from tacit.audit.inputs import attack_inputs
from tacit.audit.run import Finding
from tacit.contracts import EmbeddingProtection, Estimate, InputAttack, Protection, View
from tacit.errors import UsageError
from tacit.lab.choosing import check_limit
from tacit.lab.data import load as load_data
from tacit.lab.data.rows import Data
from tacit.lab.trial import Course, Progress, Trial, as_dict, attack, problem_of, train
from tacit.plugins import run_file
from tacit.protect.embedding.gaussian import gaussian
from tacit.protect.gradient.marvell import marvell
from tacit.protect.gradient.matched import matched
from tacit.protect.gradient.none import none
from tacit.testing import CHECKS, EMBEDDING_CHECKS, Outcome, Shielded, Subject, examine
from tacit.testing.subject import require, where

USUAL = 0.6
"""The limit at which ours are made for comparison where none is set."""

GRADIENTS, EMBEDDINGS = Course(), Course(epochs=3, last=12, follow=0)
"""How a model trains under a protection of gradients, and of embeddings."""


@dataclass(frozen=True)
class Conformance:
    """What came of an examination."""

    loaded: Loaded  # what was examined
    outcomes: tuple[Outcome, ...]  # of every check, in order
    limit: float | None = None  # what no attack may reach; None where none was set
    data: str | None = None  # the data set of the trainings; None where nothing was trained
    # what attacks on labels reached or, where embeddings are protected, which share of the inputs' variance decoders
    # read: under this protection first, then under ours
    attacked: tuple[Trial, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(one.passed for one in self.outcomes)

    @property
    def kind(self) -> Literal["embedding", "gradient"]:
        """What is protected."""
        return "embedding" if isinstance(self.loaded.protection, EmbeddingProtection) else "gradient"

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "file": str(self.loaded.file),
            "protection": self.loaded.spelled,
            "kind": self.kind,
            "passed": self.passed,
            "checks": [one.as_dict() for one in self.outcomes],
            "limit": self.limit,
            "data": self.data,
            "attacked": [{**one.as_dict(), "worst": as_dict(one.highest)} for one in self.attacked],
        }


def run(
    spec: str,
    options: Mapping[str, object] | None = None,
    *,
    limit: float | None = None,
    data: str = "flights",
    rows: int = 16000,
    quick: bool = False,
    seed: int = 0,
    progress: Progress = lambda *_: None,
) -> Conformance:
    """Examine what a file makes: first against the contract, then in a small training that every attack is tried on.

    Args:
        spec: the file's path, or path:factory.
        options: what the factory is called with.
        limit: what no attack may reach, with the upper end of its interval: a leak AUC where gradients are protected,
            the share of the inputs' variance that a decoder reads where embeddings are.
        data: a data set that needs no files, as flights or generated:credit.
        rows: how many of its rows are used.
        quick: the contract alone, nothing is trained.
        seed: of weights, batches, noise and attacks.
        progress: called with what is being done, the part that is done, and the whole.
    """
    if quick and limit is not None:
        raise UsageError("--quick trains nothing, so no limit can be judged: leave out --quick or --limit")
    loaded = load(spec, options or {})
    theirs = loaded.protection
    embedding = isinstance(theirs, EmbeddingProtection)
    if isinstance(theirs, EmbeddingProtection):
        if limit is not None and not 0 < limit < 1:
            raise UsageError(
                f"limit = {limit}: for an embedding protection it is the share of the inputs' variance that a decoder "
                "may read, between 0 and 1"
            )
        outcomes = examine(Shielded(theirs), EMBEDDING_CHECKS, progress=progress)
    else:
        if limit is not None:
            check_limit(limit)
        outcomes = examine(Subject(theirs), CHECKS, progress=progress)
    if quick:
        return Conformance(loaded, tuple(outcomes))
    table = load_data(data, rows=rows)
    tried = partial(_read if embedding else _attacked, data=table, seed=seed, progress=progress)
    beside = {"none": (), "gaussian(snr=1)": (gaussian(snr=1.0),)} if embedding else ours(limit)
    mine = partial(tried, loaded.spelled, [theirs] if embedding else theirs)
    read = "of the inputs' variance" if embedding else "of leak AUC"
    judged, trials = _compared(mine, [partial(tried, *one) for one in beside.items()], limit, table, read)
    return Conformance(loaded, (*outcomes, *judged), limit, data, tuple(trials))


def ours(limit: float | None) -> Mapping[str, Protection]:
    """What is run beside a protection of gradients: nothing, the papers' best, and what we would take at this limit.

    `matched` is made for half of the way to the limit: the rest is for what no model sees and for the interval.
    """
    goal, visits = USUAL if limit is None else limit, GRADIENTS.epochs
    half = round(0.25 + goal / 2, 3)
    return {
        "none()": none(),
        f"marvell(leak_auc={goal:g})": marvell(leak_auc=goal),
        f"matched(leak_auc={half:g}, visits={visits})": matched(leak_auc=half, visits=visits),
    }


def decoders() -> list[InputAttack]:
    """What reads: a line, and a network that is smaller and learns for a shorter time than that of a whole audit."""
    return [linear_decoder(), decoder(hidden=(256, 256), updates=800)]


def _attacked(name: str, protect: Any, *, data: Data, seed: int, progress: Progress) -> Trial:
    """A training under a protection of gradients, and every attack on what was sent."""
    course = replace(GRADIENTS, seed=seed)
    return attack(train(name, problem_of(data), course, protect=protect, progress=progress), progress=progress)


def _read(name: str, protect: Any, *, data: Data, seed: int, progress: Progress) -> Trial:
    """A training under embedding protections, read by decoders that know half of the rows."""
    course = replace(EMBEDDINGS, seed=seed)
    trained = train(name, problem_of(data), course, protect_embedding=protect, progress=progress)
    progress(f"attacking {name}", 0, 1)
    seen = trained.record.batches().view
    rows, places = seen.rows.unique(return_inverse=True)
    view, noise = View.of_embeddings(seen.embedding, rows=places), torch.Generator().manual_seed(seed)
    findings = []
    for one in attack_inputs(view, trained.model.party.hidden(rows), decoders(), noise=noise):
        assert one.relative is not None  # these are no attacks on an attribute
        read = Estimate(*(max(0.0, 1 - left) for left in (one.relative.value, one.relative.high, one.relative.low)))
        findings.append(Finding(one.attack, read, upper=read.high))
    return Trial(name, trained.test_auc, trained.model.history[-1].power, findings, {})


def _compared(
    first: Callable[[], Trial], others: Sequence[Callable[[], Trial]], limit: float | None, data: Data, what: str
) -> tuple[list[Outcome], list[Trial]]:
    """A training under this protection and, where that runs at all, under ours."""
    done: list[Trial] = []

    def trains(subject: None) -> str:
        """A model trains under it from the first step to the last, and every attack can be tried on what was sent."""
        done.append(first())
        return f"{len(data.train):,} rows of {data.name}; test AUC {done[0].test_auc:.3f}"

    def holds_the_limit(subject: None) -> str:
        """The worst attack, with the upper end of its interval, stays at or under the limit that was set."""
        highest = done[0].highest
        reached = f"{highest.attack} reaches {highest.leak}, which counts as up to {highest.held:.3f} {what}"
        require(
            done[0].holds(limit or 0.0), f"that no attack reaches more than {limit:g}", reached,
            "add noise where that attack looks (docs/ref-attacks.md says where), or more of it; the table shows what "
            "ours reach",
        )  # fmt: skip
        return reached

    outcomes = examine(None, [trains])
    if done:
        outcomes += examine(None, [holds_the_limit] if limit is not None else [])
        done += [other() for other in others]
    return outcomes, done


# --- somebody else's file --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """What a file made."""

    file: Path  # where it came from
    factory: str  # the name of what was called
    options: Mapping[str, object]  # what it was called with
    protection: Protection | EmbeddingProtection  # what it returned

    @property
    def spelled(self) -> str:
        """As it would be written in code."""
        return f"{self.factory}({', '.join(f'{key}={value!r}' for key, value in self.options.items())})"


def load(spec: str, options: Mapping[str, object]) -> Loaded:
    """The protection that a file makes."""
    path, _, name = spec.rpartition(":") if not spec.endswith(".py") else (spec, "", "")
    file = Path(path or spec)
    if not file.is_file():
        raise UsageError(f"{file}: there is no such file: pass a Python file, or file.py:factory")
    module = _module(file)
    chosen, factory = _factory(file, module, name)
    made = _made(file, chosen, factory, options)
    gradient = not isinstance(made, type) and callable(made) and hasattr(made, "init") and hasattr(made, "update")
    if not gradient and not isinstance(made, EmbeddingProtection):
        raise UsageError(
            f"{file}: {chosen}() made a {type(made).__name__}, which is no protection: one of gradients has init, "
            "update and __call__, one of embeddings has name, event, transform and regularizer"
        )
    return Loaded(file, chosen, dict(options), made)


def _module(file: Path) -> ModuleType:
    """The file's module, run as Python runs a script: what lies beside it can be imported."""
    try:
        return run_file(file, f"tacit_conformance.{file.stem}")  # its last part names it, as for our own protections
    except UsageError:
        raise
    except SyntaxError as error:
        line = f", line {error.lineno}: {(error.text or '').strip()}" if error.lineno else ""
        raise UsageError(f"{file}{line}: {error.msg}: correct it") from None
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything at all
        raise UsageError(
            f"{file} can't be imported: {type(error).__name__}: {error}{where(error, file.resolve())}: "
            f"see that `python {file}` runs"
        ) from error


def _factory(file: Path, module: ModuleType, name: str) -> tuple[str, Callable[..., Any]]:
    """What makes the protection: the one that is named, the one with the file's name, or the only one there is."""
    known = _candidates(module)
    if name and not callable(getattr(module, name, None)):
        has = f"it has: {', '.join(known)}" if known else "it has no public function"
        raise UsageError(f"{file} has no function {name!r}; {has}")
    if not name and not known:
        raise UsageError(f"{file} has nothing that makes a protection: write a function that returns one")
    if not name and len(known) > 1 and file.stem not in known:
        raise UsageError(
            f"{file} has several functions that could make the protection, {', '.join(known)}: say which, as "
            f"{file}:{known[0]}"
        )
    chosen = name or (file.stem if file.stem in known else known[0])
    return chosen, getattr(module, chosen)


def _candidates(module: ModuleType) -> list[str]:
    """The public functions that a file itself defines; where there are none, its classes that look like protections."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    own = {name: value for name, value in public.items() if getattr(value, "__module__", None) == module.__name__}
    looks = ("update", "transform")
    classes = [n for n, v in own.items() if inspect.isclass(v) and any(hasattr(v, method) for method in looks)]
    return [name for name, value in own.items() if inspect.isfunction(value)] or classes


def _made(file: Path, name: str, factory: Callable[..., Any], options: Mapping[str, object]) -> Any:
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise UsageError(
            f"{file}: {name}: {error}; it takes {inspect.signature(factory)}: give options as --option name=value"
        ) from None
    try:
        return factory(**options)
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything at all
        line = where(error, file.resolve())
        raise UsageError(
            f"{file}: {name}() raised {type(error).__name__}: {error}{line}: look at its options"
        ) from error
