"""`tacit train`: one party's part of a training between companies, from its folder; it goes on where it was.

A contract says which of two ways it is: step by step (`train`: see `label_run` and `feature_run`) or in one exchange
(`train_one_shot`: see `one_shot_label` and `one_shot_features`).
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from tacit.company import feature_run, label_run, one_shot_features, one_shot_label, seals
from tacit.company.folder import Folder
from tacit.company.one_shot_common import ExchangeTelling
from tacit.company.one_shot_features import FeatureOutcome
from tacit.company.one_shot_label import LabelOutcome
from tacit.company.one_shot_report import exchange_report
from tacit.company.run_files import OVERRIDES
from tacit.company.run_record import restored, vouch
from tacit.company.seals import write_report
from tacit.company.split_history import check_promise
from tacit.company.split_run import Progress, Trained, begin, silent, started
from tacit.company.status import Status, Telling
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.disk import held
from tacit.errors import TacitError
from tacit.views.progress import Show
from tacit.wire.exactly_once import Trace
from tacit.wire.line import Alarm, Waiting

__all__ = ["Trained", "train", "train_one_shot"]


def train(
    folder: Folder | str | Path,
    party: LabelParty | FeatureParty | None = None,
    *,
    progress: Progress = silent,
    waiting: Waiting = lambda *_: None,
    alarm: Alarm = lambda *_: None,
    trace: Trace = silent,
    after_restore: tuple[str, str] | None = None,
) -> Trained:
    """Train with the other parties of the contract. All run this at the same time, each with its own folder.

    Started again after whatever ended it, the same call goes on where it was.

    Args:
        folder: the party's folder, aligned.
        party: a party of your own, over the rows of `folder.align()`; made of party.toml if not given.
        progress: told after each turn.
        waiting: told while a peer lets us wait.
        alarm: told of everything that was refused: the peer, the field, the reason.
        trace: told of each point that a turn passes.
        after_restore: who lets the run go on from a folder that is an older copy, or whose count of what left is gone,
            and why; what it sends again is then answered again. It stays on record.
    """
    folder = Folder.at(folder)
    check_promise(folder, party.protect if isinstance(party, LabelParty) else None)
    with started(folder, lambda status: Telling(status, waiting, alarm, trace), progress, after_restore) as run:
        if folder.config.role == "label":
            return label_run.train_label(run, cast("LabelParty | None", party))
        return feature_run.train_features(run, cast("FeatureParty | None", party))


def train_one_shot(
    folder: Folder | str | Path,
    *,
    progress: Show = lambda *_: None,
    waiting: Waiting = lambda *_: None,
    alarm: Alarm = lambda *_: None,
    trace: Trace = silent,
    after_restore: tuple[str, str] | None = None,
    no_split_run: tuple[str, str] | None = None,
) -> LabelOutcome | FeatureOutcome:
    """The same in one exchange; at the end it writes the party's report into the run's folder.

    `progress` is told what is being done, how much of it is done and how much there is. `no_split_run` is who says, and
    why, that no split run of an older version had these rows; it stays on record.
    """
    folder = Folder.at(folder)
    contract = folder.one_shot
    where = begin(folder, contract)
    with held(where / "lock"):
        status = Status(where, run=contract.run, party=folder.config.name, role=folder.config.role, mode="one_shot")
        telling = ExchangeTelling(status, waiting, alarm, trace, progress)
        seals.begin(where / OVERRIDES)
        try:
            vouch(where, no_split_run)
            answered = restored(where, status.log, after_restore)
            if folder.config.role == "label":
                outcome: LabelOutcome | FeatureOutcome = one_shot_label.train_label(folder, telling, answered)
            else:
                outcome = one_shot_features.train_features(folder, telling, answered)
        except TacitError as error:
            status.update(state="stopped", reason=str(error), at_once=True)
            raise
        telling.part("writing the report")
        write_report(exchange_report(folder, progress=progress), where)
        history = [{"epoch": 0, **outcome.figures}] if isinstance(outcome, LabelOutcome) else []
        status.update(state="finished", history=history, at_once=True)
        return outcome
