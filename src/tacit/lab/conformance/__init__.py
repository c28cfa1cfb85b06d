"""Conformance: whether a protection that somebody else wrote keeps the contract, and what attacks make of it.

Every check is a small function in one of the files here, with a docstring that says what it asks for; `CHECKS` lists
them. `run` examines what a file makes, and trains and attacks under it.
"""

from __future__ import annotations

from tacit.lab.conformance.checking import CHECKS, Outcome, examine
from tacit.lab.conformance.running import Conformance, run
from tacit.lab.conformance.subject import CheckError, Subject

__all__ = ["CHECKS", "CheckError", "Conformance", "Outcome", "Subject", "examine", "run"]
