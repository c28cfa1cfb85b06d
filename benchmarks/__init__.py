"""Speed and memory, as ratios measured side by side in one run; one file for each benchmark, named after it.

`make bench` runs them all, `python -m benchmarks NAME ...` some; with --json they print one JSON document. A ratio of
1.2x means 1.2 times as long as what it is compared with. Where a figure misses its goal, the exit code is 1.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator

from benchmarks._measure import Result
from tacit.errors import UsageError

__all__ = ["Result", "names", "run"]


def names() -> list[str]:
    """The benchmarks there are: the public files of this folder. `comparison`, a folder, is a command of its own."""
    files = (module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    return sorted(name for name in files if not name.startswith("_"))


def run(name: str) -> Iterator[Result]:
    """The results of one benchmark, as they come in."""
    if name not in names():
        raise UsageError(f"there is no benchmark {name!r}; there are: {', '.join(names())}")
    benchmark: Callable[[], Iterator[Result]] = importlib.import_module(f"{__name__}.{name}").run
    return benchmark()
