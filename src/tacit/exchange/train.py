"""`tacit train` in one exchange: one party's part of it between companies; it resumes."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from tacit.company.departures import note_alignments
from tacit.company.folder import Folder
from tacit.company.overrides import restored, vouch
from tacit.company.status import Status, cause
from tacit.disk import held
from tacit.exchange import feature_party, label_party
from tacit.exchange.common import ExchangeTelling
from tacit.exchange.feature_party import FeatureOutcome
from tacit.exchange.label_party import LabelOutcome
from tacit.exchange.reporting import exchange_report
from tacit.progress import Progress, Trace
from tacit.report import seals
from tacit.report.run_files import OVERRIDES
from tacit.report.seals import write_report
from tacit.wire.line import Alarm, Waiting


def train_one_shot(
    folder: Folder | str | Path,
    *,
    progress: Progress = lambda *_: None,
    waiting: Waiting = lambda *_: None,
    wait: float = math.inf,
    alarm: Alarm = lambda *_: None,
    trace: Trace = lambda _: None,
    after_restore: tuple[str, str] | None = None,
    no_split_run: tuple[str, str] | None = None,
) -> LabelOutcome | FeatureOutcome:
    """Train with the other parties in one exchange; at the end the party's report is in the run's folder.

    `progress` is told what is being done, how much of it is done and how much there is. `wait` is how many seconds a
    peer is waited for that is not there; then it is a `GaveUpError`. `no_split_run` is who says, and
    why, that no split run of an older version had these rows; it stays on record.
    """
    folder = Folder.at(folder)
    contract = folder.one_shot
    folder.check_pair(contract)
    if folder.config.training.threads:
        torch.set_num_threads(folder.config.training.threads)
    where = folder.run_folder(contract)
    with held(where / "lock"):
        status = Status(where, run=contract.run, party=folder.config.name, role=folder.config.role, mode="one_shot")
        telling = ExchangeTelling(status, waiting, alarm, trace, progress, patience=wait)
        seals.begin(where / OVERRIDES)
        try:
            vouch(where, no_split_run)
            answered = restored(where, status.log, after_restore)
            note_alignments(folder, status)
            if folder.config.role == "label":
                outcome: LabelOutcome | FeatureOutcome = label_party.train_label(folder, telling, answered)
            else:
                outcome = feature_party.train_features(folder, telling, answered)
            telling.part("writing the report")
            write_report(exchange_report(folder, progress=progress), where)
        except Exception as error:
            status.update(state="stopped", reason=cause(error), at_once=True)
            raise
        history = [{"epoch": 0, **outcome.figures}] if isinstance(outcome, LabelOutcome) else []
        status.update(state="finished", history=history, at_once=True)
        return outcome
