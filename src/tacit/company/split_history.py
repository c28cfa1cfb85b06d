"""Which split runs have told something about a label column: what `matched` plans for, and what no bound covers.

Each is in the party's file of facts for good. How many there are is counted apart from the folder, so that an older
copy of it, which has forgotten one, is known as one.
"""

from __future__ import annotations

from tacit.company.aligned import counted_facts
from tacit.company.facts import SPLIT_RUN, Facts, SplitRun
from tacit.company.folder import Folder
from tacit.company.overrides import vouched
from tacit.labels.tally import Restored


def told_beside(folder: Folder, restored: Restored | None) -> str:
    """What has told the labels of the contract's run beside its exchange, or may have; empty for nothing.

    An older version counted split runs in `ledger/`: where that is, somebody must say that none had these rows.
    """
    with counted_facts(folder, SPLIT_RUN, restored) as facts:
        found = [
            f"the same labels went out in the split run {one.run!r} under {one.protection}, and of that and exchanges "
            "together no bound is known"
            for one in split_runs_about(facts, folder)
        ]
    if (folder.path / "ledger" / "log").exists() and not vouched(folder.run_folder(folder.terms)):
        found.append(
            "they may have gone out in split runs of an older version of Tacit, whose ledger/ lies in the party's "
            "folder (who knows that none had these rows says so with `tacit train --no-split-run NAME --reason WHY`)"
        )
    return "; ".join(found)


def split_runs_about(facts: Facts, folder: Folder) -> list[SplitRun]:
    """The split runs about this party's label column; one of which the column is not known counts for every column."""
    label = label_of(folder)
    return [one for one in facts.split_runs() if label is None or one.label in (None, label)]


def label_of(folder: Folder) -> str | None:
    """The column of labels; None where the party has none, or trains from Python without one."""
    return None if folder.config.data is None else folder.config.data.label
