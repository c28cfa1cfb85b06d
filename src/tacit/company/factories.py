"""Functions of a party's own that settings name: a network's half, a learner, a head, the rows of a service."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tacit.errors import UsageError
from tacit.plugins import run_file


def load_factory(folder: Path, factory: str, section: str = "[model]") -> Callable[..., Any]:
    """A function of the party's own, as settings name it: "file:function" or "module:function"."""
    where, _, name = factory.rpartition(":")
    module = _import(folder, where, section)
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        there = ", ".join(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise UsageError(
            f"{section} factory = {factory!r}: there is no function {name!r} in {module.__file__}; there are: "
            f"{there or 'none'}"
        )
    return function


def _import(folder: Path, where: str, section: str) -> ModuleType:
    path = folder / where if where.endswith(".py") else (folder / where.replace(".", "/")).with_suffix(".py")
    if path.is_file():
        return run_file(path, f"tacit_factory_{path.stem}")
    if where.endswith(".py"):
        raise UsageError(f"{section} factory: there is no file {path}: correct the name")
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not (where == error.name or where.startswith(f"{error.name}.")):
            raise  # something that the module itself needs
        raise UsageError(
            f"{section} factory: there is neither a file {path} nor an installed module {where!r}: correct the name"
        ) from None
