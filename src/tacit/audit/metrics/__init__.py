"""What is measured, one file for each metric; the file's name is the metric's name.

A metric is a plain function on tensors, vectorised over any leading stack and checked against a reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tacit import plugins

__all__ = ["metric", "names"]


def names() -> list[str]:
    """The names of all metrics, sorted.

    >>> "leak_auc" in names()
    True
    """
    return plugins.names(__name__)


def metric(name: str) -> Callable[..., Any]:
    """The metric of that name; an unknown name is a `UsageError` that lists the known ones.

    >>> metric("leak_auc").__name__
    'leak_auc'
    """
    return plugins.function(__name__, "metric", name)
