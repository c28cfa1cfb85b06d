"""What is known of a ledger while it is open: its records, and the files beside them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from safetensors.torch import load

from tacit.errors import StorageError
from tacit.ledger import _frames as frames
from tacit.ledger._disk import Reader, Writer
from tacit.ledger._state import Declared, Kept, State
from tacit.ledger.moments import Moments
from tacit.ledger.summary import Spent, spent_in

__all__ = ["Book"]


class Book:
    """The records of a ledger as they were read, and the moments of epochs, which stay in memory once read.

    Args:
        file: of the records; what is new in it is read when it is asked for.
    """

    def __init__(self, file: Reader) -> None:
        self.file = file
        self.state = State(file.path)
        self._moments: dict[str, Moments] = {}

    @property
    def folder(self) -> Path:
        """Where the ledger lies."""
        return self.file.folder

    def refresh(self) -> None:
        """Read what another process has added meanwhile."""
        if not isinstance(self.file, Writer) and self.file.exists():
            self.read()

    def read(self) -> None:
        """Read what was not read yet."""
        for frame in self.file.new():
            self.state.take(frame)

    def spent(self, declared: Declared) -> Spent:
        """What one run leaves in the worst case."""
        moments = {epoch: self.moments(kept) for epoch, kept in declared.epochs.items()}
        return spent_in(declared, self.state.events, moments)

    def moments(self, kept: Kept) -> Moments:
        """The moments of an epoch, if the file is what was written."""
        if kept.sha256 not in self._moments:
            path = self.folder / kept.file
            try:
                raw = path.read_bytes()
            except OSError as error:
                raise StorageError(f"{path} can't be read ({error.strerror}): bring it back as it was") from None
            if hashlib.sha256(raw).hexdigest() != kept.sha256:
                raise frames.damaged(path, 0, "the moments have changed since they were written")
            self._moments[kept.sha256] = Moments.of(load(raw))
        return self._moments[kept.sha256]
