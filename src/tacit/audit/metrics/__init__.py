"""What is measured, one file for each metric; the file's name is the metric's name.

A metric is a plain function on tensors, vectorised over any leading stack and checked against a reference.
"""

from __future__ import annotations

from tacit import plugins


def names() -> list[str]:
    """The names of all metrics, sorted."""
    return plugins.names(__name__)
