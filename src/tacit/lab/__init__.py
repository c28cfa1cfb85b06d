"""The lab: data sets, trials, and sweeps over strengths, all in one process and in the clear.

`sweep` trains every protection at every strength and measures what leaks; its `best` names the one to take under a
limit. `flights` is the table that is shipped.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.lab.data import flights
    from tacit.lab.sweeping.running import sweep

__all__ = ["flights", "sweep"]


def __getattr__(name: str) -> Any:  # on first use, so that a data set can be loaded without what a sweep needs
    if name == "flights":
        return importlib.import_module("tacit.lab.data.flights")
    if name == "sweep":
        return importlib.import_module("tacit.lab.sweeping.running").sweep
    raise AttributeError(f"module 'tacit.lab' has no attribute {name!r}")
