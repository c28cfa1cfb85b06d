"""What leaves for predictions and services, on record before it does.

A prediction has a line for all that is about to leave, once, however often it is started. A service would wait for the
disk at every row. It enters how many rows left in blocks, each a line that makes room for so many, and one that was
killed leaves it at that; of different rows each is entered once, by 16 bytes under the party's key, and a row that was
asked for before, and whose bytes are the same, needs no entry. How much a party has of all that is counted apart from
its folder, so that an older copy is known as one.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.align.history import newest
from tacit.company.departures import predictions, served_tally
from tacit.company.folder import Folder
from tacit.company.verdict import now
from tacit.disk import opened, sync_file, write_at
from tacit.errors import RefusedError, StorageError
from tacit.labels.records import Keys, keyed
from tacit.report.run_files import MARK, SERVED

_BLOCK = 10_000
_MONTH = timedelta(days=30)
_BY_KEY = "asked for by key"


def record(folder: Folder, **said: Any) -> None:
    """Put on record what is about to leave, or is asked for by key; once, however often it is started."""
    log = predictions(folder)
    if not _on_record(log.read(), said):
        log.append({"time": now(), **said})


def _on_record(lines: list[dict[str, Any]], said: Mapping[str, Any]) -> bool:
    return any({**line, "time": ""} == {**said, "time": ""} for line in lines)


def charge_keyed(folder: Folder, **said: Any) -> None:
    """Put on record that rows are asked for by key, before the first is looked up: each answer tells who is a member.

    A label party that asks for too many in 30 days, in all runs together, is refused. The same prediction again, over
    the same table, is free.
    """
    peer, rows = said["to"], said["rows"]
    lines = [line for line in predictions(folder).read() if line["what"] == _BY_KEY and line["to"] == peer]
    old = len(lines) - newest([line["time"] for line in lines], datetime.now(UTC), _MONTH)
    used, most = sum(line["rows"] for line in lines[old:]), folder.config.align.keyed_rows_a_month
    if used + rows > most and not _on_record(lines, {**said, "what": _BY_KEY}):
        record(folder, **said, what="nothing: refused", on=now())
        raise RefusedError(
            "keyed_rows_a_month",
            f"{peer} asks for {rows:,} rows by key and has asked for {used:,} in 30 days, where {most:,} are "
            f"allowed: raise `[align] keyed_rows_a_month` in the party.toml of {folder.config.name}, or wait and ask "
            f"every week (a longer pause counts as {_MONTH.days / 4:g} days, for clocks jump)",
        )
    record(folder, **said, what=_BY_KEY)


class Account:
    """How many rows leave from a service to one party; one process has it at a time.

    What leaves are "tokens" or "embeddings"; facts stand on record with it.
    """

    def __init__(self, folder: Folder, where: Path, what: str, to: str, **facts: Any) -> None:
        self._log = predictions(folder)
        self._said = {"run": where.name, "job": f"service {secrets.token_hex(8)}", "to": to, **facts}
        self._what = what
        self._used = self._room = 0  # of this service
        self.different = 0  # rows that left so far, in all services

    def take(self, rows: int) -> None:
        """Let so many leave: when this returns they are on record."""
        if self._used + rows > self._room:
            block = max(rows, _BLOCK)
            self._write(what=f"room for {self._what}", rows=block)
            self._room += block
        self._used += rows

    def close(self) -> None:
        """Enter what has really left; nothing more does."""
        if self._room:
            self._write(what=self._what, rows=self._used)
            self._room = 0

    def _write(self, **more: Any) -> None:
        more |= {"different": self.different} if self.different else {}
        self._log.append({"time": now(), **self._said, **more})


class Marks:
    """Of which rows which bytes have left: 16 bytes of both under the party's key, in a file that only grows."""

    def __init__(self, folder: Folder, where: Path) -> None:
        self._path = where / SERVED
        self._key = hmac.digest(folder.secret, b"tacit served 1", "sha256")
        raw = self._path.read_bytes() if self._path.exists() else b""
        self._end = len(raw) // MARK * MARK  # a crash may have cut the last one short: what it was for has not left
        self._known = {raw[at : at + MARK] for at in range(0, self._end, MARK)}
        lines = predictions(folder).read()
        least = max((line.get("different", 0) for line in lines if line["run"] == where.name), default=0)
        if len(self._known) < least:
            raise StorageError(
                f"{self._path} knows of {len(self._known):,} rows, and {least:,} have left: it is an older copy, or "
                "gone; bring the newest one back"
            )
        self._tally = served_tally(folder, where)
        try:
            self._tally.begin(begun=bool(self._known))
            self._tally.check(len(self), len(self))
        except StorageError:
            self._tally.close()
            raise

    def __len__(self) -> int:
        return len(self._known)

    def fresh(self, keys: Keys, values: NDArray[np.uint8]) -> tuple[NDArray[np.int64], list[bytes]]:
        """Which of these rows have not left with these bytes, and their marks."""
        raw = keyed(self._key, np.concatenate([keys, values], axis=1), "served").tobytes()
        marks = [raw[at : at + MARK] for at in range(0, len(raw), MARK)]
        places = [at for at, mark in enumerate(marks) if mark not in self._known]
        return np.array(places, np.int64), [marks[at] for at in places]

    def add(self, marks: list[bytes]) -> None:
        """They are about to leave: on the disk when this returns."""
        with opened(self._path, os.O_RDWR | os.O_CREAT) as file:
            os.ftruncate(file, self._end)
            write_at(file, self._path, [b"".join(marks)], self._end)
            sync_file(file, self._path)
        self._end += MARK * len(marks)
        self._known.update(marks)
        self._tally.reach(len(self))

    def close(self) -> None:
        """Nothing leaves any more."""
        self._tally.close()
