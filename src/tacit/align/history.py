"""What a party has answered before, so that nobody learns about single ids by asking again with an edited set.

An intersection tells who is in both sets. Two intersections with sets that differ in one id tell about that very id,
though each of them was large enough. So every alignment is written down before the peer gets an answer, and the next
one is measured against them. A peer that swaps ids keeps the size of its set and is not noticed by it: against that
only the number of alignments helps.

The file is one JSON object a line. It holds sizes and a keyed digest of this party's own set, no id and no hash of one:
without the secret, which lies elsewhere, it tells nothing about them.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tacit.align.curve import byte_order
from tacit.errors import RefusedError, StorageError, UsageError

__all__ = ["Alignment", "History"]

_BLOCK = 1 << 16
_TYPES: dict[str, type] = {"str": str, "int": int}


@dataclass(frozen=True)
class Alignment:
    """One line: an alignment that began, or how it ended.

    Attributes:
        date: when the line was written, in UTC.
        peer: with whom.
        count: ids in this party's set.
        digest: of this party's set, keyed: equal where the set is, in whatever order.
        peer_count: ids in the peer's set.
        common: ids in both; -1 where that is not known.
        result: "begun"; then "done", or the field over which it was refused.
    """

    date: str
    peer: str
    count: int
    digest: str
    peer_count: int
    common: int
    result: str


def _now() -> datetime:
    return datetime.now(UTC)


class History:
    """The alignments of one party, in a file that only it can read.

    Args:
        path: of the file; it is made with its first line.
        secret: keys the digests; keep it apart from the file.
        runs: how many alignments with one peer may begin within the window.
        window: for how long an alignment counts.
        share: a set whose size differs by at most this share of it counts as edited.
        few: and so does one that differs by at most so many ids.
        allow_edits: let edited sets pass, for a peer whose table grows by a little every day.
        now: the clock.
    """

    def __init__(
        self,
        path: str | Path,
        secret: bytes,
        *,
        runs: int = 10,
        window: timedelta = timedelta(days=30),
        share: float = 0.001,
        few: int = 100,
        allow_edits: bool = False,
        now: Callable[[], datetime] = _now,
    ) -> None:
        if len(secret) < 16:
            raise UsageError(
                f"a secret of {len(secret)} bytes: pass at least 16, as secrets.token_bytes(32) gives them"
            )
        if runs < 1:
            raise UsageError(f"runs = {runs}: allow at least one alignment with a peer")
        self.path = Path(path)
        self.runs = runs
        self.window = window
        self.share = share
        self.few = few
        self.allow_edits = allow_edits
        self._secret = secret
        self._now = now

    def check(self, peer: str, hashes: NDArray[np.uint8], peer_count: int | None = None) -> None:
        """Refuse a peer that has aligned too often, or whose set is a former one with a few ids changed.

        Args:
            peer: with whom.
            hashes: this party's set.  (count, 32)
            peer_count: ids in the peer's set; without it only the number of alignments is looked at.
        """
        recent = [line for line in self._recent(peer) if line.result == "begun"]
        if len(recent) >= self.runs:
            raise RefusedError(
                "history",
                f"{peer} has aligned {len(recent)} times since {recent[0].date}, and {self.runs} are allowed in "
                f"{self.window.days} days: every one may tell about the ids that changed; wait, or allow more runs",
            )
        if peer_count is None or self.allow_edits or not recent:
            return
        digest = self._digest(hashes)
        for line in recent:
            change = abs(line.peer_count - peer_count)
            if line.digest == digest and 0 < change <= max(self.few, self.share * line.peer_count):
                raise RefusedError(
                    "history",
                    f"{peer} comes with {peer_count} ids, and on {line.date} it came with {line.peer_count} to the "
                    f"same set of {len(hashes)}: both answers together would tell about {change} single ids; ask what "
                    "changed, then allow edits or wait until more has",
                )

    def begin(self, peer: str, hashes: NDArray[np.uint8], peer_count: int) -> Alignment:
        """Check, and write down that an alignment begins, before the peer gets any answer; pass the line to `end`."""
        self.check(peer, hashes, peer_count)
        line = Alignment(self._stamp(), peer, len(hashes), self._digest(hashes), peer_count, -1, "begun")
        self._append(line)
        return line

    def end(self, begun: Alignment, *, common: int = -1, result: str = "done") -> None:
        """Write down how an alignment ended."""
        self._append(replace(begun, date=self._stamp(), common=common, result=result))

    def lines(self) -> list[Alignment]:
        """All lines, oldest first. A damaged one is a `StorageError`: what it said may be what matters."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"{self.path} can't be read ({error.strerror}): check who owns it") from error
        whole, torn = content.rsplit(b"\n", 1) if b"\n" in content else (b"", content)
        numbered = enumerate(whole.split(b"\n") if whole else [], 1)
        found = [self._parsed(number, line) for number, line in numbered]
        if torn:
            self._damaged(len(found) + 1)
        return found

    def _parsed(self, number: int, line: bytes) -> Alignment:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return self._damaged(number)
        kinds = {field.name: _TYPES[str(field.type)] for field in fields(Alignment)}
        if not isinstance(found, dict) or {name: type(value) for name, value in found.items()} != kinds:
            return self._damaged(number)
        try:
            dated = datetime.fromisoformat(found["date"])
        except ValueError:
            return self._damaged(number)
        return Alignment(**found) if dated.tzinfo is not None else self._damaged(number)

    def _damaged(self, number: int) -> NoReturn:
        raise StorageError(
            f"{self.path}, line {number} is damaged: no alignment starts before that is cleared up; restore the file "
            "from a backup, or remove the line if you know what it said"
        )

    def _recent(self, peer: str) -> list[Alignment]:
        since = self._now() - self.window
        return [line for line in self.lines() if line.peer == peer and datetime.fromisoformat(line.date) >= since]

    def _append(self, line: Alignment) -> None:
        """One line, on the disk when this returns."""
        text = json.dumps(asdict(line), separators=(",", ":")).encode() + b"\n"
        try:
            new = not self.path.exists()
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                written = os.write(file, text)
                os.fsync(file)
            finally:
                os.close(file)
            if new:
                _sync_folder(self.path.parent)
        except OSError as error:
            raise StorageError(
                f"{self.path} can't be written ({error.strerror}): an alignment that is not written down does not start"
            ) from error
        if written < len(text):
            raise StorageError(f"{self.path}: only part of a line could be written: make room, and remove that part")

    def _digest(self, hashes: NDArray[np.uint8]) -> str:
        digest = hmac.new(self._secret, b"tacit history 1", "sha256")
        order = byte_order(hashes)
        for at in range(0, len(order), _BLOCK):
            digest.update(hashes[order[at : at + _BLOCK]].tobytes())
        return digest.hexdigest()

    def _stamp(self) -> str:
        return self._now().astimezone(UTC).isoformat(timespec="seconds")


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
