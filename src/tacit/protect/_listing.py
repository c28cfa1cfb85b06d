"""Finding protections by listing a package: one public file is one protection, and the file's name is its name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tacit.errors import UsageError


def names(package: str) -> list[str]:
    """The sorted names of a package's public modules; private ones start with an underscore."""
    path = importlib.import_module(package).__path__
    return sorted(module.name for module in pkgutil.iter_modules(path) if not module.name.startswith("_"))


def module(package: str, name: str) -> ModuleType:
    """The module of a protection, on first use; for a package's `__getattr__`."""
    if name in names(package):
        return importlib.import_module(f"{package}.{name}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def made(package: str, kind: str, name: str, options: Mapping[str, Any]) -> Any:
    """What the function of that name makes; an unknown name or option is a `UsageError`."""
    known = names(package)
    if name not in known:
        raise UsageError(f"there is no {kind} {name!r}; there are: {', '.join(known)}")
    factory = getattr(importlib.import_module(f"{package}.{name}"), name)
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise UsageError(f"{kind} {name!r}: {error}; it takes {inspect.signature(factory)}") from None
    return factory(**options)
