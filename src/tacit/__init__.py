"""Tacit: split learning that attacks itself while it trains and keeps the leak under a limit."""

from tacit._version import __version__

__all__ = ["__version__"]
