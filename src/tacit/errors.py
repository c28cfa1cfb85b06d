"""Everything that Tacit raises on purpose, in one tree.

::

    TacitError
    ├── UsageError             wrong use: an unknown name, two knobs at once, a negative strength
    │   └── DataError          a file, table or column that can't be used as it is
    ├── TensorError            a tensor of the wrong shape, dtype or range, or not finite
    │   └── LabelsError        labels that are not 0 or 1, or not one for each row
    ├── ProtocolError          a message that the contract does not allow at this point
    │   └── RefusedError       one side will not go on with the other; `field` says about what they differ
    │       └── GaveUpError    one side waits or works no longer; the same command, given again on both, resumes
    ├── LimitError             a limit that the owner set would be passed: nothing more is sent
    ├── LinkError              the connection to the peer is gone, or can't be made
    └── StorageError           a journal or checkpoint that is damaged, locked or can't be written
        └── DiskFullError      a disk that has no room

Every message says what happened, to what, and what to do next. `UsageError` and `TensorError` are also
`ValueError`, so code that knows nothing of Tacit handles them as it handles any bad argument.
"""

from typing import Literal


class TacitError(Exception):
    """The root of the tree: catch this to catch everything that Tacit raises on purpose."""


class UsageError(TacitError, ValueError):
    """The call itself is wrong; no tensor was looked at."""


class DataError(UsageError):
    """A file, table or column can't be used as it is."""


class TensorError(TacitError, ValueError):
    """A tensor has the wrong shape or dtype, or holds values that are not finite."""


class LabelsError(TensorError):
    """Labels are not binary, or do not fit the rows they belong to."""


class ProtocolError(TacitError):
    """A message came that the contract does not allow at this point."""


class RefusedError(ProtocolError):
    """One side will not go on with the other.

    Attributes:
        field: what they differ about, as the handshake names it.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class GaveUpError(RefusedError):
    """One side waits or works no longer, for a cause that tells nothing: the same command, given again, resumes.

    Attributes:
        cause: "wait" where this side gave up itself, "partner" where it heard that another one has.
    """

    FIELD = "gave up"

    def __init__(self, cause: Literal["wait", "partner"], message: str) -> None:
        super().__init__(self.FIELD, message)
        self.cause = cause


class LimitError(TacitError):
    """A limit that the owner set would be passed, or was: nothing more is sent, and the reason is for the owner."""


class LinkError(TacitError):
    """The connection to the peer is gone, or can't be made; trying again may help."""


class StorageError(TacitError):
    """A journal or checkpoint is damaged, locked by another process, or can't be written."""


class DiskFullError(StorageError):
    """A disk has no room for what is to be written."""
