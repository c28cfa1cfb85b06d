"""What is known of a ledger while it is open: its records."""

from __future__ import annotations

from pathlib import Path

from tacit.ledger._disk import Reader, Writer
from tacit.ledger._state import Declared, State
from tacit.ledger.summary import Spent, spent_in

__all__ = ["Book"]


class Book:
    """The records of a ledger as they were read.

    Args:
        file: of the records; what is new in it is read when it is asked for.
    """

    def __init__(self, file: Reader) -> None:
        self.file = file
        self.state = State(file.path)

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
        return spent_in(declared, self.state.events)
