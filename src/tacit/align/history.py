"""What a party has answered before, so that nobody learns about single ids by asking again with an edited set.

An intersection tells who is in both sets. Two intersections with sets that differ in one id tell about that very id,
though each of them was large enough. So every alignment is written down before the peer gets an answer, and the next
one is measured against them, whatever has become of this party's own table since. A peer that swaps ids keeps the size
of its set and is not noticed by it: against that only the number of alignments helps.

Nothing is ever taken out of the file, and a clock that was set ahead makes nothing old: what lies between two lines
counts as a quarter of the window at most, since nobody saw the time pass. Who was refused and waits should therefore
ask now and then; that is written down as well.

The file is one JSON object a line. It holds sizes, no id and no hash of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock

from pydantic import ConfigDict, StrictInt, StrictStr, TypeAdapter

from tacit.disk import append_line
from tacit.errors import RefusedError, StorageError, UsageError


@dataclass(frozen=True)
class Alignment:
    """One line: an alignment that began, how it ended, or that it was refused before."""

    date: StrictStr  # when the line was written, in UTC
    peer: StrictStr  # with whom
    count: StrictInt  # ids in this party's set
    peer_count: StrictInt  # ids in the peer's set
    common: StrictInt  # ids in both; -1 where that is not known
    result: StrictStr  # "begun"; then "done", or the field over which it was refused: "history" where it never began

    __pydantic_config__ = ConfigDict(extra="forbid")


_LINE = TypeAdapter(Alignment)


def newest(dates: Sequence[str], now: datetime, window: timedelta) -> int:
    """How many of the last lines (oldest first) lie within a window; a pause counts as a quarter of it at most."""
    later, age = now, timedelta(0)
    for count, text in enumerate(reversed(dates)):
        date = datetime.fromisoformat(text)
        age += min(max(later - date, timedelta(0)), window / 4)
        if age > window:
            return count
        later = date
    return len(dates)


@dataclass(frozen=True)
class History:
    """The alignments of one party, in a file that only it can read."""

    path: Path  # of the file; it is made with its first line
    _: KW_ONLY
    runs: int = 10  # how many alignments with one peer may begin within the window
    window: timedelta = timedelta(days=30)  # for how long an alignment counts
    share: float = 0.001  # a set whose size differs by at most this share of it counts as edited
    few: int = 100  # and so does one that differs by at most so many ids
    allow_edits: bool = False  # let edited sets pass, for a peer whose table grows by a little every day
    now: Callable[[], datetime] = lambda: datetime.now(UTC)  # the clock
    _writing: Lock = field(default_factory=Lock, repr=False, compare=False)  # peers align side by side

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise UsageError(f"runs = {self.runs}: allow at least one alignment with a peer")

    def check(self, peer: str, peer_count: int | None = None) -> None:
        """Refuse a peer that has aligned too often, or whose set (where its size is given) is a former one, edited."""
        recent = [line for line in self._recent(peer) if line.result == "begun"]
        if len(recent) >= self.runs:
            raise RefusedError(
                "history",
                f"{peer} has aligned {len(recent)} times since {recent[0].date}, and {self.runs} are allowed in "
                f"{self.window.days} days: every one may tell about the ids that changed; allow more runs, or wait and "
                f"ask every week (a longer pause counts as {self.window.days / 4:g} days, for clocks jump)",
            )
        if peer_count is None or self.allow_edits:
            return
        for line in recent:
            change = abs(line.peer_count - peer_count)
            if 0 < change <= max(self.few, self.share * line.peer_count):
                raise RefusedError(
                    "history",
                    f"{peer} comes with {peer_count} ids, and on {line.date} it came with {line.peer_count}: both "
                    f"answers together would tell about {change} single ids; ask what changed, then allow edits or "
                    "wait until more has",
                )

    def begin(self, peer: str, count: int, peer_count: int) -> Alignment:
        """Check, and write down that an alignment begins, before the peer gets any answer; pass the line to `end`."""
        line = Alignment(self._stamp(), peer, count, peer_count, -1, "begun")
        with self._writing:
            try:
                self.check(peer, peer_count)
            except RefusedError as error:
                self._append(replace(line, result=error.field))
                raise
            self._append(line)
        return line

    def end(self, begun: Alignment, *, common: int = -1, result: str = "done") -> None:
        """Write down how an alignment ended."""
        with self._writing:
            self._append(replace(begun, date=self._stamp(), common=common, result=result))

    def lines(self) -> list[Alignment]:
        """All lines, oldest first. A damaged one is a `StorageError`: what it said may be what matters."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"{self.path} can't be read ({error.strerror}): check who owns it") from error
        *whole, torn = content.split(b"\n")
        lines = [self._parsed(number, line) for number, line in enumerate(whole, 1)]
        if torn:
            raise self._damaged(len(lines) + 1)
        return lines

    def _parsed(self, number: int, line: bytes) -> Alignment:
        try:
            content = json.loads(line)
            content.pop("digest", None)  # of this party's set: older lines have it
            parsed = _LINE.validate_python(content)
            dated = datetime.fromisoformat(parsed.date).tzinfo is not None
        except (ValueError, AttributeError, TypeError, RecursionError):
            dated = False
        if not dated:
            raise self._damaged(number)
        return parsed

    def _damaged(self, number: int) -> StorageError:
        return StorageError(
            f"{self.path}, line {number} is damaged: no alignment starts before that is cleared up; restore the file "
            "from a backup, or remove the line if you know what it said"
        )

    def _recent(self, peer: str) -> list[Alignment]:
        """The lines of this peer within the window, oldest first; a pause counts as a quarter of it at most."""
        lines = self.lines()
        old = len(lines) - newest([line.date for line in lines], self.now(), self.window)
        return [line for line in lines[old:] if line.peer == peer]

    def _append(self, line: Alignment) -> None:
        """One line, on the disk when this returns."""
        try:
            append_line(self.path, asdict(line), durable=True)
        except StorageError as error:
            raise StorageError(f"{error}; an alignment that is not written down does not start") from error

    def _stamp(self) -> str:
        return self.now().astimezone(UTC).isoformat(timespec="seconds")
