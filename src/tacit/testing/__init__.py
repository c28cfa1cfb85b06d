"""The contract suite for protections that others write: whether one keeps what every protection owes.

Every check is a small function with a docstring that says what it asks for; `CHECKS` and `EMBEDDING_CHECKS` list them.
`tacit conformance FILE` runs them on what a file makes, and trains and attacks under it. In a test of your own:

>>> from tacit.protect.gradient.iso import iso
>>> [one.name for one in examine(Subject(iso(t=1.0)), CHECKS[:3]) if not one.passed]
[]
"""

from __future__ import annotations

from collections.abc import Callable

from tacit.testing import closed, form, randomness
from tacit.testing.embedding import EMBEDDING_CHECKS, Shielded
from tacit.testing.subject import CheckError, Outcome, Subject, examine

__all__ = ["CHECKS", "EMBEDDING_CHECKS", "CheckError", "Outcome", "Shielded", "Subject", "examine"]

CHECKS: tuple[Callable[[Subject], str], ...] = (*form.CHECKS, *randomness.CHECKS, *closed.CHECKS, *form.BOOKS)
"""What a gradient protection owes, one function each: it returns a detail, or raises a `CheckError`."""
