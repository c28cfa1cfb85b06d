"""`tacit train` in one exchange: one party's part of it, from its folder; it goes on where it was."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

from tacit.disk import locked
from tacit.errors import TacitError
from tacit.party import sealed_log
from tacit.party.folder import Folder
from tacit.party.one_shot_common import Telling
from tacit.party.one_shot_features import FeatureOutcome, train_features
from tacit.party.one_shot_label import LabelOutcome, train_label
from tacit.party.one_shot_report import exchange_report
from tacit.party.run_files import OVERRIDES
from tacit.party.run_record import restored
from tacit.party.seals import write_report
from tacit.party.status import Status
from tacit.wire.line import Alarm, Waiting

__all__ = ["train_one_shot"]


def train_one_shot(
    folder: Folder | str | Path,
    *,
    progress: Callable[[str, int, int], None] = lambda *_: None,
    waiting: Waiting = lambda *_: None,
    alarm: Alarm = lambda *_: None,
    trace: Callable[[str], None] = lambda _: None,
    after_restore: tuple[str, str] | None = None,
) -> LabelOutcome | FeatureOutcome:
    """Train with the other parties of the contract in one exchange. All run this at the same time, each in its folder.

    Started again after whatever ended it, the same call goes on where it was. At the end it writes the party's report
    into the run's folder.

    Args:
        folder: the party's folder, aligned.
        progress: told what is being done, how much of it is done and how much there is.
        waiting: told while a peer lets us wait.
        alarm: told of everything that was refused: the peer, the field, the reason.
        trace: told of each point that the run passes.
        after_restore: who lets a label party go on from a folder that is an older copy, or whose count of what left is
            gone, and why. It stays on record.
    """
    folder = folder if isinstance(folder, Folder) else Folder(folder)
    contract = folder.one_shot
    folder.check_pair(contract)
    if folder.config.training.threads:
        torch.set_num_threads(folder.config.training.threads)
    where = folder.run_folder(contract)
    lock = locked(where / "lock")
    try:
        status = Status(where, run=contract.run, party=folder.config.name, role=folder.config.role, mode="one_shot")
        telling = Telling(status, progress, waiting, alarm, trace)
        sealed_log.begin(where / OVERRIDES)
        try:
            if folder.config.role == "label":
                answered = restored(where, status.log, after_restore)
                outcome: LabelOutcome | FeatureOutcome = train_label(folder, telling, answered)
            else:
                outcome = train_features(folder, telling)
        except TacitError as error:
            status.update(state="stopped", reason=str(error), at_once=True)
            raise
        telling.part("writing the report")
        write_report(exchange_report(folder), where)
        history = [{"epoch": 0, **outcome.figures}] if isinstance(outcome, LabelOutcome) else []
        status.update(state="finished", history=history, at_once=True)
        return outcome
    finally:
        os.close(lock)
