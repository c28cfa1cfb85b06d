"""Every attack against every protection: the same model trained once under each, and all that it sent attacked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl
import torch
from torch import Tensor

from tacit.audit.attacks import attack, describe
from tacit.audit.metrics.leak_auc import auc
from tacit.audit.run import Finding, attack_all, worst
from tacit.audit.standard import on_batches, on_visits
from tacit.contracts import Protection, View
from tacit.cut.simulate import Simulation, simulate
from tacit.errors import UsageError
from tacit.lab.data.rows import Data, Table
from tacit.lab.stack.network import network_for
from tacit.lab.sweeping.settings import Setting
from tacit.models import adam
from tacit.wire.record import Recorder, Transcript

__all__ = ["AttackTable", "Column", "Line", "run", "settings"]

Progress = Callable[[str, int, int], None]
On = Literal["batches", "visits", "answers"]

LAST = 24  # batches that are attacked one by one
FOLLOWED = 4096  # examples whose visits are added up
KEPT = 160  # batches of a training that are kept whole at most, for attacks on all of it together
ANSWERS = 8  # how often each of a few batches is answered, where duplicates are tried
_REPEATED = 8  # batches that are answered so often
_DUPLICATES = ("likelihood", "direct_label", "residual")


@dataclass(frozen=True)
class Line:
    """What one attack found of one training.

    Attributes:
        on: single batches, all visits of an example, or several answers to one request (which the protocol refuses).
        finding: what it reached.
    """

    on: On
    finding: Finding

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        one = self.finding
        baseline = None if one.baseline is None else one.baseline.value
        return {"on": self.on, "attack": one.attack, **asdict(one.leak), "baseline": baseline, "seconds": one.seconds}


@dataclass(frozen=True)
class Column:
    """One training.

    Attributes:
        protection: as it would be written in code.
        test_auc: of the trained model on rows it has not seen.
        noise: the mean squared norm of a row's noise over that of its gradient, in the last epoch.
        lines: what each attack found.
        skipped: attacks that could not run, with the reason.
    """

    protection: str
    test_auc: float
    noise: float
    lines: list[Line]
    skipped: dict[str, str]

    @property
    def worst(self) -> Finding:
        """What leaked most in a training as the protocol allows it."""
        return worst([line.finding for line in self.lines if line.on != "answers"])

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        most = {"attack": self.worst.attack, **asdict(self.worst.leak)}
        found = [line.as_dict() for line in self.lines]
        figures = {"protection": self.protection, "test_auc": self.test_auc, "noise": self.noise, "worst": most}
        return {**figures, "findings": found, "skipped": self.skipped}


@dataclass(frozen=True)
class AttackTable:
    """All trainings.

    Attributes:
        recipe: what was trained: data set, rows, epochs, rows of a batch, seed.
        columns: one for each protection.
    """

    recipe: dict[str, Any]
    columns: list[Column]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form, with what each attack knows and costs."""
        names = sorted({line.finding.attack.partition("(")[0] for column in self.columns for line in column.lines})
        attacks = {name: describe(name)._asdict() for name in names}
        return {**self.recipe, "trainings": [column.as_dict() for column in self.columns], "attacks": attacks}

    def frame(self) -> pl.DataFrame:
        """One row for each training and attack."""
        return pl.DataFrame(
            [{"protection": column.protection, **line.as_dict()} for column in self.columns for line in column.lines],
            schema_overrides={"baseline": pl.Float64},
        )

    def save(self, folder: Path) -> list[Path]:
        """Write `attacks.md`, `attacks.json` and `attacks.parquet`; returns their paths."""
        from tacit.lab._attack_words import markdown

        paths = [folder / f"attacks.{ending}" for ending in ("md", "json", "parquet")]
        paths[0].write_text(markdown(self))
        paths[1].write_text(json.dumps(self.as_dict(), indent=2) + "\n")
        self.frame().write_parquet(paths[2])
        return paths


def settings(epochs: int) -> list[Setting]:
    """The protections that are compared, from none to the strongest."""
    promised = [
        Setting("matched", "leak_auc", 0.6, (("visits", visits),)) for visits in dict.fromkeys((1, max(1, epochs)))
    ]
    fixed = [
        Setting("none"),
        Setting("max_norm"),
        Setting("iso", "t", 10.0),
        Setting("marvell", "scale", 4.0),
    ]
    return [*fixed, *promised]


def run(
    data: Data,
    *,
    epochs: int = 3,
    batch_size: int = 1024,
    learning_rate: float = 1e-3,
    seed: int = 0,
    progress: Progress = lambda *_: None,
) -> AttackTable:
    """Train under each protection and attack what was sent.

    Args:
        data: a table of both parties.
        epochs: how often every row is visited.
        batch_size: rows in a batch; fewer where there are fewer rows.
        learning_rate: of Adam.
        seed: of weights, batches, noise and attacks.
        progress: called with what is being done, what is done and all there is to do.
    """
    if not isinstance(data.inputs, Table):
        raise UsageError(f"{data.name} holds pictures: the table of attacks is trained on tables, as credit or flights")
    size = min(batch_size, len(data.train))
    columns = [_column(one, data, epochs, size, learning_rate, seed, progress) for one in settings(epochs)]
    recipe = {
        "data": data.name, "training_rows": len(data.train), "share": data.share, "epochs": epochs,
        "batch_size": size, "learning_rate": learning_rate, "seed": seed, "attacked_batches": LAST,
        "followed": min(FOLLOWED, len(data.train)), "answers": ANSWERS,
    }  # fmt: skip
    return AttackTable(recipe, columns)


def _column(
    setting: Setting, data: Data, epochs: int, batch_size: int, rate: float, seed: int, progress: Progress
) -> Column:
    name, protect, truth = setting.spelled, setting.build(), data.train.labels
    steps = epochs * (len(data.train) // batch_size)
    recorder = Recorder(last=min(KEPT, max(LAST, steps)), follow=FOLLOWED)
    bottom, top = network_for(data.inputs).build(seed)
    trained = simulate(
        bottom=bottom,
        top=top,
        features=data.train.features,
        own=data.train.own,
        labels=truth,
        protect=protect,
        optimizer=lambda module: adam(module, lr=rate),
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        record=recorder,
        progress=lambda *done: progress(f"training with {name}", *done),
    )
    skipped: dict[tuple[str, str], str] = {}
    kept = recorder.batches()
    batches = _last(kept, LAST)
    lines = [
        Line("batches", one)
        for one in on_batches(
            batches.view, batches.clean, truth, seed=seed, skipped=skipped,
            progress=lambda *done: progress(f"attacking {name}", *done),
        )
    ]  # fmt: skip
    lines += _over_visits(recorder, kept, truth, seed, skipped)
    lines += _over_answers(protect, _last(kept, _REPEATED), truth, seed, skipped)
    found = {line.finding.attack for line in lines}
    missing = {attack: reason for (attack, _), reason in skipped.items() if attack not in found}
    return Column(name, _test_auc(trained, data), trained.history[-1].power, lines, missing)


def _test_auc(trained: Simulation, data: Data) -> float:
    return float(auc(trained.predict(data.test.features, data.test.own), data.test.labels))


def _over_visits(
    recorder: Recorder, kept: Transcript, truth: Tensor, seed: int, skipped: dict[tuple[str, str], str]
) -> list[Line]:
    """The attacks on all visits of the followed examples, and the one on sums over as much as was kept whole."""
    visits = recorder.visits()
    if len(visits.view.rows) < 2:
        return []
    found = on_visits(visits.view, visits.clean, truth, seed=seed, skipped=skipped)
    noise = torch.Generator().manual_seed(seed)
    found += attack_all(kept.view, truth, ["summed_gradients"], noise=noise, skipped=skipped)
    return [Line("visits", one) for one in found]


def _over_answers(
    protect: Protection, batches: Transcript, truth: Tensor, seed: int, skipped: dict[tuple[str, str], str]
) -> list[Line]:
    """Duplicates: the last batches answered several times, as a system would that protects every repeated request anew.

    The protection goes through the batches once before, so that it has its running statistics.
    """
    view, noise = batches.view, torch.Generator().manual_seed(seed)
    state, answers = protect.init(), []
    for turn in range(ANSWERS + 1):
        for rows, clean, z in zip(view.rows, batches.clean, view.embedding, strict=True):
            made = protect.update(clean, truth[rows], state, noise, embedding=z)
            state = made.state
            answers += [made.value] if turn else []
    again = View.of(
        torch.stack(answers), rows=view.rows.repeat(ANSWERS, 1), embedding=view.embedding.repeat(ANSWERS, 1, 1)
    )
    attacks = [attack("duplicates", attack=inner) for inner in _DUPLICATES]
    noise = torch.Generator().manual_seed(seed)
    return [Line("answers", one) for one in attack_all(again, truth, attacks, noise=noise, skipped=skipped)]


def _last(transcript: Transcript, steps: int) -> Transcript:
    """The last batches of a transcript."""
    view = transcript.view
    return Transcript(
        View.of(view.gradient[-steps:], rows=view.rows[-steps:], embedding=view.embedding[-steps:]),
        transcript.clean[-steps:],
    )
