"""Runs for TensorBoard: files of events, written as they are, without TensorFlow.

What a folder holds already is read back from its files of events, so that a run that is written twice, or by a process
that was killed in between, has no point twice. Each process begins a file of its own; a last event that was cut short
is passed over, by us and by TensorBoard.
"""

from __future__ import annotations

import math
import os
import struct
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from tacit.disk import locked, storing
from tacit.errors import UsageError
from tacit.views.track.tracker import Point, State, Tracker, needed

_FILE = "events.out.tfevents."
_LOCK = ".tacit-track.lock"  # ends with the process: two that write the same run would write every point twice
_BUSY = "another process writes this run already: stop that one, or choose another folder"
_HEAD = 12  # bytes: the length of an event and its check
_CHECK = 4  # bytes behind it
_TEXT = "/text_summary"  # TensorBoard's own ending of the names of texts


class TensorBoard(Tracker):
    """One run in a folder that `tensorboard --logdir` shows.

    >>> import tempfile
    >>> from tacit.views.track import TensorBoard
    >>> with TensorBoard(tempfile.mkdtemp(), run="mine") as log:
    ...     for step, loss in enumerate([0.7, 0.5, 0.4]):
    ...         log(step, {"loss": loss, "leak/norm": 0.52})
    >>> log.reached("loss")
    2

    Args:
        folder: of all runs; it is made where it is not there.
        run: the name of this one, and of its folder; events that are there stay.
    """

    def __init__(self, folder: str | Path, *, run: str) -> None:
        self._events = needed("tensorboard.compat.proto.event_pb2")
        self._summaries = needed("tensorboard.compat.proto.summary_pb2")
        self._records = needed("tensorboard.summary.writer.record_writer")
        if run in ("", ".", "..") or "\0" in run:
            raise UsageError(f"run = {run!r} is no name for a folder: choose another one")
        self.path = Path(folder) / run.replace("/", "-")
        with storing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock: int | None = locked(self.path / _LOCK, _BUSY)
            self._reached = _read(_earlier(self.path), self._events)
        self._file: IO[bytes] | None = None  # begun with the first event, so that where nothing is new none is left

    def reached(self, name: str) -> int:
        """The last step that is kept under a name; -1 where there is none."""
        return self._reached.get(name, -1)

    def facts(self, facts: Mapping[str, object]) -> None:
        """A table under "facts", once."""
        if self.reached("facts") < 0 and facts:
            rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.items()]
            self.text("facts", 0, "\n".join(["| fact | value |", "|---|---|", *rows]))

    def points(self, points: Sequence[Point]) -> None:
        """Keep figures; those of the same step and time become one event."""
        together: dict[tuple[int, float], dict[str, float]] = {}
        now = clock.time()
        for point in points:
            when = now if point.time is None else point.time
            together.setdefault((point.step, when), {})[point.name] = point.value
        value = self._summaries.Summary.Value
        for (step, when), values in together.items():
            self._add(step, when, {name: value(tag=name, simple_value=figure) for name, figure in values.items()})

    def text(self, name: str, step: int, text: str, *, time: float | None = None) -> None:
        """Keep words, which TensorBoard reads as Markdown."""
        tensor = needed("tensorboard.compat.proto.tensor_pb2").TensorProto
        shape = needed("tensorboard.compat.proto.tensor_shape_pb2").TensorShapeProto
        kinds = needed("tensorboard.compat.proto.types_pb2")
        about = self._summaries.SummaryMetadata
        kept = self._summaries.Summary.Value(
            tag=name + _TEXT,
            metadata=about(plugin_data=about.PluginData(plugin_name="text")),
            tensor=tensor(
                dtype=kinds.DT_STRING, string_val=[text.encode()], tensor_shape=shape(dim=[shape.Dim(size=1)])
            ),
        )
        self._add(step, time, {name: kept})

    def histogram(
        self, name: str, step: int, edges: Sequence[float], counts: Sequence[int], *, time: float | None = None
    ) -> None:
        """Keep counts between edges; the sums that TensorBoard wants beside them are those of the bins' middles."""
        middles = [(low + high) / 2 for low, high in pairwise(edges)]
        counted = list(zip(middles, counts, strict=True))
        kept = self._summaries.HistogramProto(
            min=edges[0],
            max=edges[-1],
            num=sum(counts),
            sum=math.fsum(middle * count for middle, count in counted),
            sum_squares=math.fsum(middle**2 * count for middle, count in counted),
            bucket_limit=edges[1:],
            bucket=counts,
        )
        self._add(step, time, {name: self._summaries.Summary.Value(tag=name, histo=kept)})

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
            self._file = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _add(self, step: int, time: float | None, values: Mapping[str, Any]) -> None:
        summary = self._summaries.Summary(value=values.values())
        self._write(self._events.Event(wall_time=clock.time() if time is None else time, step=step, summary=summary))
        for name in values:
            self._reached[name] = max(step, self.reached(name))

    def _write(self, event: Any) -> None:
        if self._lock is None:
            raise UsageError(f"the tracker of {self.path} is closed: open another one for the same run, and it goes on")
        with storing(self.path):
            if self._file is None:
                self._file = _new(self.path)
                self._write(self._events.Event(wall_time=clock.time(), file_version="brain.Event:2"))
            self._records.RecordWriter(self._file).write(event.SerializeToString())


def _earlier(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_FILE}*"))


def _new(folder: Path) -> IO[bytes]:
    """A file whose name comes after all others: TensorBoard reads them in the order of their names."""
    stamps = [int(digits) for path in _earlier(folder) if (digits := path.name.removeprefix(_FILE)[:10]).isdigit()]
    stamp = max([int(clock.time()), *(earlier + 1 for earlier in stamps)])
    return (folder / f"{_FILE}{stamp:010d}.tacit").open("xb")


def _read(paths: Sequence[Path], events: Any) -> dict[str, int]:
    """The last step of each name in some files."""
    reached: dict[str, int] = {}
    undecodable = needed("google.protobuf.message").DecodeError
    for path in paths:
        for content in _contents(path):
            try:
                event = events.Event.FromString(content)
            except undecodable:
                break
            for value in event.summary.value:
                name = value.tag.removesuffix(_TEXT)
                reached[name] = max(event.step, reached.get(name, -1))
    return reached


def _contents(path: Path) -> Iterator[bytes]:
    """What the events of a file hold, up to one that was cut short or damaged."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while len(head := file.read(_HEAD)) == _HEAD:
            (length,) = struct.unpack("<Q", head[:8])
            if length > size:  # never asked for: it might be more than there is memory
                return
            content = file.read(length)
            if len(content) < length or len(file.read(_CHECK)) < _CHECK:
                return
            yield content


def _cell(value: object) -> str:
    """For a table in Markdown, in which a bar or a new line would begin another cell."""
    return str(value).replace("|", "\\|").replace("\n", " ")
