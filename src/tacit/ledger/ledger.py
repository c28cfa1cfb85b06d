"""Every answered request of every example, over epochs, days, resumes and runs: written down before it leaves.

::

    ledger/
    ├── log                          the records, each bound to those before it
    ├── synced                       how far the disk is known to hold them
    ├── secret                       makes the keys; it never leaves the folder
    ├── keys-….npy                   eight bytes for each aligned row: knows an example again in another run
    └── lock                         one process adds at a time

A step is one record of some sixty bytes, however many rows it has, because a run's plan and the step's number tell the
rows: 15 epochs over 100 million rows in batches of 1024 are 1.5 million records, about 100 MB.
"""

from __future__ import annotations

import hmac
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tacit.disk import locked, make_folder, write
from tacit.errors import StorageError, UsageError
from tacit.ledger.book import LOCK, Book, RunLedger, Writer, encode_fact
from tacit.ledger.keys import Keys, digest_of, load_keys, store_keys
from tacit.ledger.log import Reader
from tacit.ledger.run import ANSWERS, Declared, Run
from tacit.ledger.summary import RunSummary, Summary, auc_of, by_example, histogram, spent_in, sum_kl_of

_SECRET = 32  # bytes
_LEAST = 1e-9  # a sumKL below this takes more noise than numbers can hold


@dataclass(frozen=True)
class Checked:
    """What a check of a whole ledger saw."""

    records: int  # that follow each other without a break
    bytes: int  # of the file of records
    head: str  # digest at the end of the chain
    torn: int  # bytes at the end that are no whole record: a write that is under way, or that a crash cut short


class Ledger:
    """A party's ledger. Reading needs no lock and works while another process adds; `begin` makes this one add.

    The secret makes the keys of ids; it is drawn with the ledger and kept in its folder. Another one than that is a
    `StorageError`, because no example would be known again.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._writer: Writer | None = None
        self._anew()

    def _anew(self) -> None:
        self._reader = Reader(self.folder)
        self._book = Book(self._reader.path)

    def _read(self) -> Book:
        """Everything that the file says, also what another process has added meanwhile."""
        if self._writer is None and self._reader.exists():
            for frame in self._reader.new():
                self._book.take(frame)
        return self._book

    # --- writing ---

    @property
    def secret(self) -> bytes:
        """For `keys_of`."""
        path = self.folder / "secret"
        if not path.exists():
            if self._reader.exists():
                raise StorageError(f"{path} is missing: without it no example is known again; bring it back")
            make_folder(self.folder)
            write(path, os.urandom(_SECRET))
        return path.read_bytes()

    def begin(self, run: Run, keys: Keys | None, *, budget: float | None = None) -> RunLedger:
        """Declare a run, or go on with it under the same plan and keys; from here on no other process can add.

        Without keys, where a party has no ids, the run's examples are counted, but not known again in other runs. The
        budget, a leak AUC for any example over all runs, is told in summaries.
        """
        if keys is not None and keys.shape != (run.count,):
            raise UsageError(f"{keys.shape} keys for {run.count} aligned rows: pass one for each, in their order")
        name = digest_of(keys)
        writer = self._opened()
        known = [number for number, one in enumerate(self._book.runs) if one.run.identity == run.identity]
        if known:
            declared = self._book.runs[known[-1]]
            if declared.run != run or declared.keys != name:
                other = "another plan" if declared.run != run else "other keys"
                raise StorageError(
                    f"{self.folder}: the run {run.name!r} was declared with {other}, and what was answered in it can't "
                    "be told any more: put plan and data back, or start a new run under another name"
                )
        else:
            if keys is not None:
                store_keys(self.folder, keys, name)
            self._book.take(writer.add("run", encode_fact("run", {**asdict(run), "keys": name})))
            known = [len(self._book.runs) - 1]
        if self._book.runs[known[-1]].budget != budget:
            self._book.take(writer.add("budget", encode_fact("budget", {"run": known[-1], "budget": budget})))
        writer.sync()
        return RunLedger(self._book, writer, known[-1])

    def _opened(self) -> Writer:
        """The one file, open for adding, with everything read and what a crash cut short taken off."""
        if self._writer is not None:
            return self._writer
        check = hmac.digest(self.secret, b"tacit ledger", "sha256")[:16]
        make_folder(self.folder)
        lock = locked(self.folder / LOCK)
        try:
            self._anew()
            if not self._reader.exists():
                self._reader.create(check)
            self._read()
            if self._reader.secret_check != check:
                raise StorageError(
                    f"{self.folder}: the ledger was begun with another secret, so that no example of former runs would "
                    "be known again: bring the secret back"
                )
            self._writer = Writer(self.folder, self._reader.end, self._reader.chain, lock)
        except BaseException:
            os.close(lock)
            raise
        return self._writer

    def close(self) -> None:
        """Sync, and let another process add."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            self._anew()
            writer.close()

    # --- reading ---

    def check(self) -> Checked:
        """Read all of it anew, the files of keys too; the first damage is a `StorageError`."""
        fresh = Ledger(self.folder)
        for declared in fresh.runs():
            if declared.keys:
                load_keys(self.folder, declared.keys, check=True)
        read = fresh._reader
        return Checked(fresh.records, read.end, read.chain.hex(), read.tail)

    def summary(self) -> Summary:
        """What has been spent so far, with the budget that the newest run was started with."""
        runs = self.runs()
        each = [self._line(declared) for declared in runs]
        visits = histogram(by_example(runs, lambda one: one.visits().astype(np.float64), self._keys))
        most = self._most_spent(runs, each)
        unknown = sum(not declared.keys for declared in runs)
        notes = [note for line in each for note in (f"{line.name}: {text}" for text in line.notes)]
        notes += [
            f"{one.run.name}: figures over the labels of {max(one.told.values())} test rows were told {len(one.told)} "
            "times, which is in no worst case"
            for one in runs
            if one.told
        ]
        if unknown:
            notes.append(f"{unknown} runs have no ids: their examples are counted by row number, for each run apart")
        return Summary(
            examples=sum(visits.values()), answers=sum(line.answers for line in each), runs=len(runs),
            most_visits=max(visits, default=0), visits=visits, worst_case=None if most is None else auc_of(most),
            budget=runs[-1].budget if runs else None,
            head=(self._writer or self._reader).chain.hex(), notes=tuple(notes), each=tuple(each),
        )  # fmt: skip

    @property
    def records(self) -> int:
        """How many there are."""
        return self._read().count

    def runs(self) -> list[Declared]:
        """All runs, with what was answered in them so far."""
        return self._read().runs

    def spent_by(self, keys: Keys | None, *, but: Run | None = None) -> NDArray[np.float64]:
        """For each example what all runs but one together have left of its secret, a sumKL; without ids all are new."""
        if keys is None:
            return np.zeros(0)
        found = np.zeros(len(keys))
        for declared in self.runs():
            if not declared.keys or (but is not None and declared.run.identity == but.identity):
                continue
            left = spent_in(declared, self._book.events).sum_kl
            if left == 0.0:
                continue
            visited = self._keys(declared.keys)[declared.visits() > 0]
            found[np.isin(keys, visited)] += np.inf if left is None else left
        return found

    def _most_spent(self, runs: list[Declared], each: list[RunSummary]) -> float | None:
        """The largest sum over all runs that any example has; None where some run's part is not known."""
        left = {id(declared): line.sum_kl for declared, line in zip(runs, each, strict=True)}
        if any(one is None for one in left.values()):
            return None

        def of(declared: Declared) -> NDArray[np.float64]:
            return np.where(declared.visits() > 0, left[id(declared)] or 0.0, 0.0)

        return max((float(values.max(initial=0.0)) for values in by_example(runs, of, self._keys)), default=0.0)

    def _line(self, declared: Declared) -> RunSummary:
        run, left = declared.run, spent_in(declared, self._book.events)
        trained, evaluated = (len(declared.places[kind]) for kind in ANSWERS)
        return RunSummary(
            name=run.name, role=run.role, rows=run.count, epochs=run.epochs, trained=trained, evaluated=evaluated,
            answers=int(declared.visits().sum(dtype=np.int64)), known=bool(declared.keys),
            mechanisms=tuple(self._book.events[number].mechanism for number in sorted(declared.events)),
            sum_kl=left.sum_kl, notes=left.notes,
        )  # fmt: skip

    def _keys(self, name: str) -> Keys:
        return load_keys(self.folder, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_budget(budget: float, used: NDArray[np.float64], run: Run) -> None:
    """Refuse a run with rows of which former runs have left nothing; they have `used` so much of each (`spent_by`).

    A budget is a leak AUC A in the worst case over all visits of any example in all runs, which allows a sumKL of
    2 Phi^-1(A)^2 in all. Runs are independent trainings, so what each leaves adds up. A former run whose part is not
    known has used up everything that it visited.
    """
    if not 0.5 < budget <= 1.0:
        raise UsageError(f"budget = {budget!r}: it is a leak AUC above 0.5, a coin flip, and at most 1")
    gone = int(np.count_nonzero(used > sum_kl_of(budget) - _LEAST))
    if gone:
        raise UsageError(
            f"budget = {budget}: former runs have used it up for {gone} of {len(used)} rows of the run {run.name!r} "
            "(`tacit ledger` shows them; one whose protection has no bound for a row counts as all of it): leave these "
            "rows out, or set a larger budget in party.toml"
        )
