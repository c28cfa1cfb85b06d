"""What those who train many replicas at once use of the protections: all of them as one, and kernels compiled once."""

from __future__ import annotations

from tacit.protect.gradient._base import fused
from tacit.protect.gradient._stack import stacked

__all__ = ["fused", "stacked"]
