"""What is written down of a run, so that attacks can be tried on it: in bounded memory, or on disk.

A run that is killed goes on from a checkpoint and repeats the turns since then, bit for bit. So what is on disk is
brought there together with the checkpoints (`keep`), and whoever goes on from one forgets what was written down after
it (`resume`): the repeated turns write it down again, and in the end nothing is missing and nothing is there twice.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tacit.contracts import View
from tacit.disk import make_folder, opened, remove
from tacit.errors import StorageError, UsageError
from tacit.split._frames import Frame, read_frames, write_frame

_VISITS = "visits"
_PART = "last.part"
_NAME = re.compile(r"last-(\d{12})")
_RINGS = 3  # those of the two checkpoints that are kept, and of the one that is about to be written


@dataclass(frozen=True)
class Transcript:
    """A view of a run, and beside it what only an evaluator may know."""

    view: View  # the feature party's view
    clean: Tensor  # the gradient before it was protected, in the shape of `view.gradient`: for oracles and for figures
    labels: Tensor | None = None  # in the shape of `view.rows`, where they were written down


_Step = Mapping[str, Tensor]
# A step's tensors by name: "rows", "embedding", "gradient"; "own_embedding" and "clean" where they are others than
# these two.
_INSTEAD = {"own_embedding": "embedding", "clean": "gradient"}


class Recorder:
    """Keeps the last batches whole, and every visit of a few examples.

    Args:
        last: how many batches to keep; older ones are forgotten.
        follow: of how many examples to keep every visit, for accumulated attacks.
        chosen: the ids of these examples; those with the smallest ids, where nobody is to be kept from knowing them.
    """

    def __init__(self, *, last: int = 32, follow: int = 0, chosen: Tensor | None = None) -> None:
        for name, value in (("last", last), ("follow", follow)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError(f"Recorder({name}={value!r}): {name} is a count, pass a whole number, 0 or more")
        if last < 0 or follow < 0 or last + follow == 0:
            raise UsageError(f"Recorder(last={last}, follow={follow}) would keep nothing: set one of them above 0")
        self.follow = follow
        self._chosen = None if chosen is None else chosen.sort().values
        self._last: deque[_Step] = deque(maxlen=last)
        self._followed: list[_Step] = []

    def write(  # a step's tensors, by name
        self,
        *,
        rows: Tensor,
        embedding: Tensor,
        gradient: Tensor,
        clean: Tensor,
        own_embedding: Tensor | None = None,
        labels: Tensor | None = None,
        keep: bool = True,
        step: int | None = None,
    ) -> None:
        """Write one step down.

        Args:
            rows: of the batch.
            embedding: that was sent.
            gradient: that came back.
            clean: the same before it was protected.
            own_embedding: the embedding before its party protected it, where that is known.
            labels: of the batch, where nobody else keeps them.
            keep: whether the batch is one to be kept whole; followed examples are followed in any case.
            step: its number, where somebody counts: it must be the next one.
        """
        self._take(step)
        written = {"rows": rows, "embedding": embedding.detach(), "gradient": gradient}
        if own_embedding is not None:
            written["own_embedding"] = own_embedding.detach()
        if labels is not None:
            written["labels"] = labels
        if clean is not gradient:
            written["clean"] = clean
        if self._last.maxlen and keep:
            self._last.append(self._kept_of(written))
        if self.follow:
            places = self._followed_in(rows).nonzero().squeeze(1)
            if len(places):
                self._followed.append(self._kept_of(_select(written, places)))

    def _kept_of(self, step: _Step) -> _Step:
        """A step's tensors as they are kept; in memory they stay where they are."""
        return step

    def _take(self, step: int | None) -> None:
        """A step is about to be written down; in memory nobody counts them."""

    def _followed_in(self, rows: Tensor) -> Tensor:
        """Which of these rows are followed.  (batch,)"""
        if self._chosen is None:
            return rows < self.follow
        place = torch.searchsorted(self._chosen, rows).clamp(max=len(self._chosen) - 1)
        return self._chosen[place] == rows

    @property
    def recorded(self) -> bool:
        """Whether any batch was kept whole."""
        return bool(self._last)

    @property
    def visited(self) -> bool:
        """Whether any followed example was visited."""
        return bool(self._visited())

    def batches(self) -> Transcript:
        """The last batches, oldest first."""
        if not self._last:
            raise UsageError("no batch was recorded: give the recorder last= above 0 and train at least one step")
        return _transcript(list(self._last))

    def visits(self) -> Transcript:
        """Every visit of the followed examples: one step of the view for each visit, all with the same rows.

        Examples that were visited less often than the most visited one (they sat an epoch out) are left out.
        """
        steps = self._visited()
        if not steps:
            raise UsageError("no example was followed: give the recorder follow= above 0 and train at least one step")
        joined = _joined(torch.cat, steps)
        rows = joined["rows"]
        order = torch.argsort(rows, stable=True)  # by example, and by time within an example
        _, counts = torch.unique_consecutive(rows[order], return_counts=True)
        visits = int(counts.max())
        starts = (counts.cumsum(0) - counts)[counts == visits]
        places = order[starts[None, :] + torch.arange(visits, device=order.device)[:, None]]  # (visits, examples)
        return _transcript([_select(joined, place) for place in places])

    def _visited(self) -> list[_Step]:
        """What was kept of the followed examples, oldest first."""
        return self._followed


class RecordedRun(Recorder):
    """A recorder whose last batches and followed visits are on disk and survive whatever ends the process.

    In memory are the last batches and what was followed since the last `keep`. On disk are all visits of the followed
    examples (`visits`), and the last batches as they were at the three newest checkpoints (`last-<turn>`). Nothing is
    synced: a kill loses nothing, and what a power cut takes is noticed and counted in `unrecorded`.

    Only its owner may read the folder. What a label party writes down holds its clean gradients, and those hold its
    labels: it is as secret as the labels themselves, and the party's `[record]` bounds how much there is of it.

    What is recorded as `gradient` and `embedding` should be the tensor as it is decoded from the bytes that were sent:
    an audit of anything else is an audit of something else.
    """

    def __init__(self, folder: str | Path, *, last: int = 32, follow: int = 0, chosen: Tensor | None = None) -> None:
        super().__init__(last=last, follow=follow, chosen=chosen)
        self.folder = Path(folder)
        # what `resume` found that could not be used, by its file: it went on without
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

    def _kept_of(self, step: _Step) -> _Step:
        return {name: value.cpu() for name, value in step.items()}

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

    def _take(self, step: int | None) -> None:
        self._writable()
        if step is not None and step != self._step:
            raise UsageError(f"{self.folder}: step {step} came where step {self._step} is next: write each step once")
        self._step += 1

    def keep(self, turn: int) -> None:
        """Bring everything to the disk, just before the checkpoint of this turn is written."""
        self._writable()
        if self.follow and self._step > self._kept:
            tensors = _joined(torch.cat, self._followed) if self._followed else {}
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
        return [frame.tensors for frame in self._frames() if frame.tensors] + self._followed

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
                end = write_frame(fd, part, Frame(place, place + 1, step), end)
            os.ftruncate(fd, end)
            part.replace(_ring(self.folder, turn))

    def _writable(self) -> None:
        if not self._ready:
            raise UsageError(
                f"{self.folder}: call resume(turn, step) before anything is written, resume(0, 0) for a new run; what "
                "`open` gave is for reading"
            )


def _select(step: _Step, places: Tensor) -> _Step:
    return {name: value.index_select(0, places.to(value.device)) for name, value in step.items()}


def _joined(join: Callable[[list[Tensor]], Tensor], steps: Sequence[_Step]) -> dict[str, Tensor]:
    """The tensors of all steps, joined by name; what one step has under a name of its own stands for itself."""
    names = dict.fromkeys(name for step in steps for name in step)
    return {name: join([step[name] if name in step else step[_INSTEAD[name]] for step in steps]) for name in names}


def _transcript(steps: Sequence[_Step]) -> Transcript:
    joined = _joined(torch.stack, steps)
    embedding, gradient = joined["embedding"], joined["gradient"]
    view = View.of(
        gradient, rows=joined["rows"], embedding=embedding, own_embedding=joined.get("own_embedding", embedding)
    )
    return Transcript(view, joined.get("clean", gradient).flatten(start_dim=2), joined.get("labels"))


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
    return frames[0].about, [frame.tensors for frame in frames[1:]]


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
