"""Every attack against every protection: the same model trained once under each, and all that it sent attacked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from tacit.audit import attacks
from tacit.audit.run import Finding, worst
from tacit.errors import DataError
from tacit.lab.data.rows import Data, Table
from tacit.lab.sweeping.settings import Setting
from tacit.lab.trial import Course, as_dict, attack, problem_of, train
from tacit.progress import Progress
from tacit.split.protect.gradient import theorem_1
from tacit.split.record import Transcript

__all__ = ["AttackTable", "Column", "markdown", "run", "settings"]

LAST = 24  # batches that are attacked one by one

BLOCKS: Mapping[str, str] = {
    "batches": "on single batches",
    "visits": "over all visits of an example",
}
"""What attacks are tried on, and how the table says it."""


@dataclass(frozen=True)
class Column:
    """One training.

    Attributes:
        protection: as it would be written in code.
        test_auc: of the trained model on rows it has not seen.
        noise: the mean squared norm of a row's noise over that of its gradient, in the last epoch.
        findings: what each attack found, for each of `BLOCKS`.
        skipped: attacks that could not run, with the reason.
        bound: on the AUC of any attack on a single batch by theorem 1, for the largest sumKL that is left in one of the
            attacked batches under the model; None of a protection that knows none.
    """

    protection: str
    test_auc: float
    noise: float
    findings: Mapping[str, Sequence[Finding]]
    skipped: Mapping[str, str]
    bound: float | None = None

    @property
    def worst(self) -> Finding:
        """What leaked most."""
        return worst([one for findings in self.findings.values() for one in findings])

    def rows(self) -> list[dict[str, Any]]:
        """What each attack found, in the JSON form."""
        return [
            {"on": on, **as_dict(one), "of_embeddings": _of_embeddings(one), "seconds": one.seconds}
            for on, findings in self.findings.items()
            for one in findings
        ]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        figures = {"protection": self.protection, "test_auc": self.test_auc, "noise": self.noise, "bound": self.bound}
        return {**figures, "worst": as_dict(self.worst), "findings": self.rows(), "skipped": dict(self.skipped)}


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
        names = sorted({row["attack"].partition("(")[0] for column in self.columns for row in column.rows()})
        costs = {name: attacks.describe(name)._asdict() for name in names}
        return {**self.recipe, "trainings": [column.as_dict() for column in self.columns], "attacks": costs}

    def save(self, folder: Path) -> list[Path]:
        """Write `attacks.md`, `attacks.json` and `attacks.csv`; returns their paths."""
        paths = [folder / f"attacks.{ending}" for ending in ("md", "json", "csv")]
        paths[0].write_text(markdown(self))
        paths[1].write_text(json.dumps(self.as_dict(), indent=2) + "\n")
        rows = [{"protection": column.protection, **row} for column in self.columns for row in column.rows()]
        pl.DataFrame(rows, schema_overrides={"baseline": pl.Float64}).write_csv(paths[2])
        return paths


def settings(epochs: int) -> list[Setting]:
    """The protections that are compared, from none to the strongest."""
    promised = [Setting("matched", "leak_auc", 0.6, (("visits", visits),)) for visits in dict.fromkeys((1, epochs))]
    fixed = [Setting("none"), Setting("max_norm"), Setting("iso", "t", 10.0), Setting("marvell", "scale", 4.0)]
    return [*fixed, *promised]


def run(
    data: Data,
    *,
    epochs: int = 3,
    batch_size: int = 1024,
    seed: int = 0,
    of: Sequence[Setting] | None = None,
    progress: Progress = lambda *_: None,
) -> AttackTable:
    """Train under each protection and attack what was sent.

    Args:
        data: a table of both parties.
        epochs: how often every row is visited.
        batch_size: rows in a batch; fewer where there are fewer rows.
        seed: of weights, batches, noise and attacks.
        of: protections that are compared; those of `settings` if not given.
        progress: called with what is being done, what is done and all there is to do.
    """
    if not isinstance(data.inputs, Table):
        raise DataError(f"{data.name} holds pictures: the table of attacks is trained on tables, as credit or flights")
    size = min(batch_size, len(data.train))
    course = Course(epochs=epochs, batch_size=size, learning_rate=1e-3, last=LAST, seed=seed)
    columns = [_column(one, data, course, progress) for one in of or settings(epochs)]
    recipe = {
        "data": data.name, "training_rows": len(data.train), "share": data.share, "epochs": epochs,
        "batch_size": size, "seed": seed, "attacked_batches": LAST, "followed": course.follow,
    }  # fmt: skip
    return AttackTable(recipe, columns)


def _column(setting: Setting, data: Data, course: Course, progress: Progress) -> Column:
    trained = train(setting.spelled, problem_of(data), course, protect=setting.build(), progress=progress)
    trial = attack(trained, progress=progress)
    findings = {
        "batches": [one for one in trial.findings if not one.attack.startswith("accumulated")],
        "visits": [one for one in trial.findings if one.attack.startswith("accumulated")],
    }
    bound = _bound(setting, trained.record.batches(), data.train.labels)
    return Column(setting.spelled, trial.test_auc, trial.noise, findings, trial.skipped, bound)


def _bound(setting: Setting, sent: Transcript, labels: Tensor) -> float | None:
    """Theorem 1 for the largest sumKL that the protection leaves in a recorded batch."""
    protect, left = setting.build(), list[float]()
    noise, state = torch.Generator().manual_seed(setting.seed), protect.init()
    assert sent.clean is not None
    for clean, rows in zip(sent.clean, sent.view.rows, strict=True):
        made = protect.update(clean, labels[rows], state, noise)
        state = made.state
        if "sum_kl" in made.report and not made.report["stateless"]:
            left.append(float(made.report["sum_kl"]))
    return float(theorem_1(torch.tensor(max(left)))) if left else None


def _of_embeddings(finding: Finding) -> bool:
    """Whether the attack looks at its own embeddings alone, so that nothing of it is a leak of the gradients."""
    return finding.baseline is not None and finding.baseline == finding.leak


# --- in words --------------------------------------------------------------------------------------------------------


def markdown(table: AttackTable) -> str:
    """The whole table, the worst attack last, with what there is to know about it."""
    head = ["attack", "seconds", *(f"`{column.protection}`" for column in table.columns)]
    rows = [head, ["---", *("---:" for _ in head[1:])]]
    for on, title in BLOCKS.items():
        found = [{one.attack: one for one in column.findings[on]} for column in table.columns]
        names = dict.fromkeys(name for column in found for name in column)
        rows += [[f"*{title}*", *([""] * (len(head) - 1))]] if names else []
        for name in names:
            here = [column.get(name) for column in found]
            rows.append([name, _seconds(here), *map(_cell, here)])
    rows += [
        ["**worst**", "", *(f"**{_worst(column)}**" for column in table.columns)],
        ["test AUC of the model", "", *(f"{column.test_auc:.3f}" for column in table.columns)],
        ["noise over gradient", "", *(f"{column.noise:.1f}x" for column in table.columns)],
        ["theorem 1", "", *("-" if column.bound is None else f"{column.bound:.3f}" for column in table.columns)],
    ]
    return "\n".join([_note(table.recipe), "", *(f"| {' | '.join(row)} |" for row in rows), ""])


def _cell(one: Finding | None) -> str:
    """A leak AUC; in brackets what the attacker reaches without any row's gradient, "=" where that is all it uses."""
    if one is None:
        return "-"
    if one.baseline is None:
        return f"{one.leak.value:.3f}"
    return f"{one.leak.value:.3f} ({'=' if _of_embeddings(one) else f'{one.baseline.value:.3f}'})"


def _note(recipe: Mapping[str, Any]) -> str:
    """What was trained and how to read it."""
    return (
        f"{recipe['data']}: {recipe['training_rows']:,} training rows, {recipe['share']:.1%} positive, "
        f"{recipe['epochs']} epochs, batches of {recipe['batch_size']:,}, seed {recipe['seed']}. Leak AUC on the last "
        f"{recipe['attacked_batches']} batches, and over all visits of {recipe['followed']:,} examples; 0.5 is a coin "
        "flip, 1.0 an open book. In brackets: what the same attacker reaches from its own embeddings, without the "
        "gradient of the row; = where it looks at nothing else, which is what the model has learned and no leak of the "
        "gradients. The worst is what lies farthest above that. Theorem 1: what no attack on a single batch exceeds "
        "where gradients are as the protection's model takes them to be. Seconds: of the attack, on one machine, the "
        "mean over the columns."
    )


def _seconds(found: Sequence[Finding | None]) -> str:
    times = [one.seconds for one in found if one is not None]
    return f"{sum(times) / len(times):.2f}" if times else ""


def _worst(column: Column) -> str:
    return f"{column.worst.leak.value:.3f} {column.worst.attack}"
