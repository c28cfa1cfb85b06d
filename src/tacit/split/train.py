"""`tacit train` step by step: one party's part of a split training between companies; it resumes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

from tacit.company.folder import Folder
from tacit.company.status import Status, Telling
from tacit.progress import Trace
from tacit.split import feature_run, label_run
from tacit.split.feature_party import FeatureParty
from tacit.split.label_party import LabelParty
from tacit.split.promise import check_promise
from tacit.split.run import Trained, Turned, silent, started
from tacit.wire.line import Alarm, Waiting

__all__ = ["Trained", "train"]


def train(
    folder: Folder | str | Path,
    party: LabelParty | FeatureParty | None = None,
    *,
    progress: Turned = silent,
    waiting: Waiting = lambda *_: None,
    wait: float = math.inf,
    alarm: Alarm = lambda *_: None,
    trace: Trace = silent,
    after_restore: tuple[str, str] | None = None,
) -> Trained:
    """Train with the other parties of the contract. All run this at the same time, each with its own folder.

    Started again after whatever ended it, the same call resumes.

    Args:
        folder: the party's folder, aligned.
        party: a party of your own, over the rows of `folder.align()`; made of party.toml if not given.
        progress: told after each turn.
        waiting: told while a peer lets us wait.
        wait: how many seconds a peer is waited for that is not there; then it is a `GaveUpError`.
        alarm: told of everything that was refused: the peer, the field, the reason.
        trace: told of each point that a turn passes.
        after_restore: who lets the run go on from a folder that is an older copy, or whose count of what was sent is
            gone, and why; what it sends again is then answered again. It stays on record.
    """
    folder = Folder.at(folder)
    check_promise(folder, party.protect if isinstance(party, LabelParty) else None)

    def telling(status: Status) -> Telling:
        return Telling(status, waiting, alarm, trace, patience=wait)

    with started(folder, telling, progress, after_restore) as run:
        if folder.config.role == "label":
            return label_run.train_label(run, cast("LabelParty | None", party))
        return feature_run.train_features(run, cast("FeatureParty | None", party))
