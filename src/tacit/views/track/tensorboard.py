"""Runs for TensorBoard: files of events, written as they are, without TensorFlow.

What a folder holds already is read back from its files of events, so that a run that is written twice, or by a process
that was killed in between, has no point twice. Each process begins a file of its own; a last event that was cut short
is passed over, by us and by TensorBoard.
"""

from __future__ import annotations

import os
import time as clock
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tacit.disk import locked, storing
from tacit.views.track.tracker import Point, State, Tracker, needed

_FILE = "events.out.tfevents."
_LOCK = ".tacit-track.lock"  # ends with the process: two that write the same run would write every point twice
_BUSY = "another process writes this run already: stop that one, or choose another folder"
_TEXT = "/text_summary"  # TensorBoard's own ending of the names of texts


class TensorBoard(Tracker):
    """One run, in a folder of its name in the one that `tensorboard --logdir` shows; events that are there stay."""

    def __init__(self, folder: str | Path, *, run: str) -> None:
        self._events = needed("tensorboard.compat.proto.event_pb2")
        self._records = needed("tensorboard.summary.writer.record_writer")
        self._summaries = needed("torch.utils.tensorboard.summary")
        self.path = Path(folder) / run.replace("/", "-")
        with storing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = locked(self.path / _LOCK, _BUSY)
            self._reached: dict[str, int] = {}
            # TensorBoard passes over an event that was cut short or damaged
            loader = needed("tensorboard.backend.event_processing.event_file_loader").LegacyEventFileLoader
            for path in sorted(self.path.glob(f"{_FILE}*")):
                for event in loader(str(path)).Load():
                    self._note(event)
        self._file: IO[bytes] | None = None  # begun with the first event, so that where nothing is new none is left

    def reached(self, name: str) -> int:
        """The last step that is kept under a name; -1 where there is none."""
        return self._reached.get(name, -1)

    def facts(self, facts: Mapping[str, object]) -> None:
        """A table under "facts", once; a bar or a new line in it would begin another cell."""
        if self.reached("facts") < 0 and facts:
            cells = [[str(each).replace("|", "\\|").replace("\n", " ") for each in pair] for pair in facts.items()]
            rows = [f"| {name} | {value} |" for name, value in cells]
            self.text("facts", 0, "\n".join(["| fact | value |", "|---|---|", *rows]))

    def points(self, points: Sequence[Point]) -> None:
        """Keep figures; those of the same step and time become one event."""
        together: dict[tuple[int, float], list[Any]] = {}
        now = clock.time()
        for point in points:
            when = now if point.time is None else point.time
            together.setdefault((point.step, when), []).append(self._summaries.scalar(point.name, point.value))
        for (step, when), summaries in sorted(together.items(), key=lambda one: one[0]):  # no curve goes back
            self._add(step, when, *summaries)

    def text(self, name: str, step: int, text: str, *, time: float | None = None) -> None:
        """Keep words, which TensorBoard reads as Markdown."""
        self._add(step, time, self._summaries.text(name, text))

    def flush(self) -> None:
        """Hand everything to the file, where TensorBoard sees it."""
        if self._file is not None:
            with storing(self.path):
                self._file.flush()

    def close(self, state: State = "finished") -> None:
        """End the file. TensorBoard does not ask how a run ended."""
        self.flush()
        if self._file is not None:
            self._file.close()
        os.close(self._lock)

    def _add(self, step: int, time: float | None, *summaries: Any) -> None:
        event = self._events.Event(wall_time=clock.time() if time is None else time, step=step)
        for summary in summaries:
            event.summary.MergeFrom(summary)
        self._write(event)
        self._note(event)

    def _note(self, event: Any) -> None:
        """Keep the step of an event as the last one of each name in it."""
        for value in event.summary.value:
            name = value.tag.removesuffix(_TEXT)
            self._reached[name] = max(event.step, self.reached(name))

    def _write(self, event: Any) -> None:
        with storing(self.path):
            if self._file is None:
                # its name comes after all others: TensorBoard reads them in the order of their names
                digits = [path.name.removeprefix(_FILE)[:10] for path in self.path.glob(f"{_FILE}*")]
                stamp = max([int(clock.time()), *(int(earlier) + 1 for earlier in digits if earlier.isdigit())])
                self._file = (self.path / f"{_FILE}{stamp:010d}.tacit").open("xb")
                self._write(self._events.Event(wall_time=clock.time(), file_version="brain.Event:2"))
            self._records.RecordWriter(self._file).write(event.SerializeToString())
