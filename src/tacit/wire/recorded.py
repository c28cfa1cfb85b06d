"""What is written down of a run on disk, so that attacks after the fact see all of it, whatever kills lay between.

A run that is killed goes on from a checkpoint and repeats the turns since then, bit for bit. So the transcript is
brought to the disk together with the checkpoints (`keep`), and whoever goes on from one forgets what was written down
after it (`resume`): the repeated turns write it down again, and in the end nothing is missing and nothing is there
twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from tacit.disk import make_folder, opened, remove
from tacit.errors import StorageError, UsageError
from tacit.wire._frames import Frame, read_frames, write_frame
from tacit.wire.record import Recorder, _cat, _Step

__all__ = ["RecordedRun"]

_VISITS = "visits"
_PART = "last.part"
_NAME = re.compile(r"last-(\d{12})")
_RINGS = 3  # those of the two checkpoints that are kept, and of the one that is about to be written


class RecordedRun(Recorder):
    """A recorder whose last batches and followed visits are on disk and survive whatever ends the process.

    In memory are the last batches and what was followed since the last `keep`. On disk are all visits of the followed
    examples (`visits`), and the last batches as they were at the three newest checkpoints (`last-<turn>`). Nothing is
    synced: a kill loses nothing, and what a power cut takes is noticed and counted in `unrecorded`.

    Only its owner may read the folder. What a label party writes down holds its clean gradients, and those hold its
    labels: it is as secret as the labels themselves, and the party's `[record]` bounds how much there is of it.

    What is recorded as `gradient` and `embedding` should be the tensor as it is decoded from the bytes that were sent:
    an audit of anything else is an audit of something else.

    Attributes:
        damaged: what `resume` found that could not be used, by its file: it went on without.

    Args:
        folder: where it is kept; made where there is none.
        last: how many batches to keep; older ones are forgotten.
        follow: of how many examples to keep every visit.
        chosen: which ones, as `Recorder` has it.
    """

    def __init__(self, folder: str | Path, *, last: int = 32, follow: int = 0, chosen: Tensor | None = None) -> None:
        super().__init__(last=last, follow=follow, chosen=chosen)
        self.folder = Path(folder)
        self.damaged: dict[Path, StorageError] = {}
        self._ready = False  # whether it may be written to
        self._step = self._kept = 0  # the next step, and the first one that is not on disk
        self._covered = 0  # steps whose visits are on disk
        self._size = 0  # of the file of visits

    @classmethod
    def open(cls, folder: str | Path) -> RecordedRun:
        """What a run has written down up to its last checkpoint, for reading; the run may go on meanwhile."""
        folder = Path(folder)
        turns = _turns(folder)
        if not turns:
            raise UsageError(
                f"{folder}: nothing is recorded there: let the party train up to its first checkpoint, with [record] "
                "in party.toml"
            )
        about, steps = _read_newest(folder, turns[-1])
        found = cls(folder, last=about["last"], follow=about["follow"])
        found._last.extend(steps)
        found._step = found._kept = about["step"]
        if found.follow:
            found._covered = sum(frame.end - frame.begin for frame in found._frames())
        return found

    @property
    def steps(self) -> int:
        """Steps of the run that lie behind, recorded or not."""
        return self._step

    @property
    def unrecorded(self) -> int:
        """Steps whose visits are missing: recording was off, or what was recorded is lost."""
        return self._kept - self._covered if self.follow else 0

    @property
    def visited(self) -> bool:
        """Whether any followed example was visited: no more is read than it takes."""
        return bool(self._followed) or any(frame.tensors for frame in self._frames())

    def write(
        self,
        *,
        step: int | None = None,
        rows: Tensor,
        embedding: Tensor,
        gradient: Tensor,
        clean: Tensor,
        layers: Mapping[str, Tensor],
        clean_layers: Mapping[str, Tensor] | None = None,
        own_embedding: Tensor | None = None,
        keep: bool = True,
    ) -> None:
        """Write one step down, as `Recorder` does; `step` is its number, which must be the next one."""
        self._writable()
        if step is not None and step != self._step:
            raise UsageError(f"{self.folder}: step {step} came where step {self._step} is next: write each step once")
        super().write(
            rows=rows, embedding=embedding, gradient=gradient, clean=clean, layers=layers, clean_layers=clean_layers,
            own_embedding=own_embedding, keep=keep,
        )  # fmt: skip
        self._step += 1

    def keep(self, turn: int) -> None:
        """Bring everything to the disk, just before the checkpoint of this turn is written."""
        self._writable()
        if self.follow and self._step > self._kept:
            tensors = _tensors(_cat(self._followed)) if self._followed else {}
            path = self.folder / _VISITS
            with opened(path, os.O_WRONLY | os.O_CREAT) as fd:
                self._size = write_frame(fd, path, Frame(self._kept, self._step, tensors), self._size)
            self._covered += self._step - self._kept
            self._followed.clear()
        self._kept = self._step
        self._write_ring(turn)

    def resume(self, turn: int, step: int) -> None:
        """Go on from the checkpoint of a turn, before which so many steps were done: forget all that came after it.

        What should be there and is not, or is damaged, does not stop a training: it is noted in `damaged`, and visits
        that are missing are counted in `unrecorded`.
        """
        make_folder(self.folder)
        self._last.clear()
        self._followed.clear()
        self._step = self._kept = step
        for later in [each for each in _turns(self.folder) if each > turn]:
            remove(_ring(self.folder, later))
        path = _ring(self.folder, turn)
        if path.exists():
            try:
                about, steps = _read_ring(path)
                if about["step"] != step:
                    raise StorageError(f"{path}: it is of step {about['step']}, the checkpoint of step {step}")
                self._last.extend(steps)
            except StorageError as error:
                self.damaged[path] = error
        self._cut(step)
        self._ready = True

    def _cut(self, step: int) -> None:
        """Cut the file of visits off where a step begins, or where damage does."""
        path = self.folder / _VISITS
        self._covered = self._size = 0
        if not path.exists():
            return
        with opened(path, os.O_RDWR) as fd:
            try:
                for end, frame in read_frames(fd, path, before=step):
                    self._size, self._covered = end, self._covered + frame.end - frame.begin
            except StorageError as error:
                self.damaged[path] = error
            os.ftruncate(fd, self._size)

    def _visited(self) -> list[_Step]:
        return [_step(frame.tensors) for frame in self._frames() if frame.tensors] + self._followed

    def _frames(self) -> Iterator[Frame]:
        """The visits on disk, up to what was kept last."""
        path = self.folder / _VISITS
        if path.exists():
            with opened(path, os.O_RDONLY) as fd:
                for _, frame in read_frames(fd, path, before=self._kept):
                    yield frame

    def _write_ring(self, turn: int) -> None:
        """Write the last batches into the oldest file's place: to pages that are there already, in a fifth of the time.

        The file has its name only while it is whole.
        """
        part, others = self.folder / _PART, [each for each in _turns(self.folder) if each != turn]
        for spare in others[: 1 - _RINGS]:
            _ring(self.folder, spare).replace(part)
        about = {"last": self._last.maxlen or 0, "follow": self.follow, "step": self._step}
        with opened(part, os.O_WRONLY | os.O_CREAT) as fd:
            end = write_frame(fd, part, Frame(self._step, self._step, {}, about), 0)
            for place, step in enumerate(self._last):
                end = write_frame(fd, part, Frame(place, place + 1, _tensors(step)), end)
            os.ftruncate(fd, end)
            part.replace(_ring(self.folder, turn))

    def _writable(self) -> None:
        if not self._ready:
            raise UsageError(
                f"{self.folder}: call resume(turn, step) before anything is written, resume(0, 0) for a new run; what "
                "`open` gave is for reading"
            )


def _turns(folder: Path) -> list[int]:
    """The turns whose last batches are there, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(int(match[1]) for each in folder.iterdir() if (match := _NAME.fullmatch(each.name)))


def _ring(folder: Path, turn: int) -> Path:
    return folder / f"last-{turn:012d}"


def _read_ring(path: Path) -> tuple[Mapping[str, int], list[_Step]]:
    with opened(path, os.O_RDONLY) as fd:
        frames = [frame for _, frame in read_frames(fd, path)]
    if not frames or "step" not in frames[0].about:
        raise StorageError(f"{path}: damaged, it does not say of which step it is: move it away")
    return frames[0].about, [_step(frame.tensors) for frame in frames[1:]]


def _read_newest(folder: Path, turn: int) -> tuple[Mapping[str, int], list[_Step]]:
    """The last batches, of this turn or of one that has come since: a run may write over a file that is being read."""
    while True:
        path = _ring(folder, turn)
        try:
            found, error = _read_ring(path), None
        except StorageError as damaged:
            found, error = None, damaged
        newest = _turns(folder)[-1:]
        if found is not None and path.exists():
            return found  # its name is taken off before anything is written over it
        if error is not None and newest in ([], [turn]):
            raise error
        turn = newest[-1] if newest else turn


def _tensors(step: _Step) -> dict[str, Tensor]:
    """A step's tensors by name; what is one tensor under two names is named once."""
    named = {"rows": step.rows, "embedding": step.embedding, "gradient": step.gradient}
    if step.own_embedding is not step.embedding:
        named["own_embedding"] = step.own_embedding
    if step.clean is not step.gradient:
        named["clean"] = step.clean
    for group in ("layers", "clean_layers"):
        named |= {f"{group}/{name}": value for name, value in getattr(step, group).items()}
    return named


def _step(named: Mapping[str, Tensor]) -> _Step:
    """The opposite of `_tensors`."""
    groups: dict[str, dict[str, Tensor]] = {"layers": {}, "clean_layers": {}}
    for name, value in named.items():
        group, found, layer = name.partition("/")
        if found:
            groups[group][layer] = value
    own, clean = named.get("own_embedding", named["embedding"]), named.get("clean", named["gradient"])
    return _Step(named["rows"], named["embedding"], own, named["gradient"], clean, **groups)
