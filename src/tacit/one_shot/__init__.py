"""One-shot training: labels flipped once, embeddings attacked at home and sent once.

The package is called like the function: `tacit.one_shot(...)` trains in one process, see
`tacit.one_shot.in_process.one_shot`; `import tacit.one_shot.flips` and its likes work as of any package.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that is also the function of its name; PyTorch is imported when it is called."""

    def __call__(self, **options: Any) -> Any:
        """Train both parties in one process: see `tacit.one_shot.in_process.one_shot`."""
        from tacit.one_shot.in_process import one_shot

        return one_shot(**options)


sys.modules[__name__].__class__ = _Callable
