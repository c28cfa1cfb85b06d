"""Rows and pictures that can't be used: the first one is an error, or all of them are left out and counted."""

from __future__ import annotations

from tacit.errors import DataError, UsageError


def cured(message: str) -> str:
    """What is wrong with a row, and what to do about it."""
    return f'{message}: correct it, or leave such rows out with bad="skip" (--bad skip)'


def check_rows(rows: int | None) -> None:
    """Refuse a number of rows that is none: a slice would leave out the last ones for a negative one."""
    if rows is not None and rows < 1:
        raise UsageError(f"rows is {rows}: choose a number of rows from 1 on, or leave it out for all")


def limited(count: int, rows: int | None, sample: float) -> int:
    """How many of so many rows are used: a share of them, and no more than were asked for.

    >>> limited(1000, None, 0.1), limited(1000, 50, 0.1), limited(1000, 500, 1.0)
    (100, 50, 500)
    """
    check_rows(rows)
    if not 0 < sample <= 1:
        raise UsageError(f"sample is {sample}: give a share of the rows above 0 and at most 1")
    share = round(sample * count)
    return share if rows is None else min(rows, share)


class Faults:
    """What a loader does about them.

    >>> faults = Faults("skip")
    >>> faults.meet("adult.data, line 7: the age is 'old', no number")
    >>> faults.skipped
    1
    """

    def __init__(self, bad: str) -> None:
        if bad not in ("raise", "skip"):
            raise UsageError(f"bad is {bad!r}: choose 'raise', to stop at a row that can't be used, or 'skip'")
        self.bad = bad
        self.skipped = 0  # how many were left out so far

    def meet(self, message: str) -> None:
        """One that can't be used, with its file and line and what is wrong."""
        if self.bad == "raise":
            raise DataError(cured(message))
        self.skipped += 1
