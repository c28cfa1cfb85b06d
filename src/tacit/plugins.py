"""Finding plugins by listing a package: one public file is one plugin, and the file's name is the plugin's name.

A plugin is a function of its file's name, which makes the protection or the attack, and beside it a record `FACTS` of
what others need to know before they make one. Nothing else names it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from tacit.errors import UsageError


def names(package: str) -> list[str]:
    """The sorted names of a package's public modules, without importing it; private ones start with an underscore."""
    loaded = sys.modules.get(package)
    root, *way = package.split(".")
    path = [str(Path(part, *way)) for part in sys.modules[root].__path__] if loaded is None else loaded.__path__
    return sorted(found.name for found in pkgutil.iter_modules(path) if not found.name.startswith("_"))


def module(package: str, name: str) -> ModuleType:
    """The module of a plugin, on first use; for a package's `__getattr__`."""
    if name in names(package):
        return importlib.import_module(f"{package}.{name}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def function(package: str, kind: str, name: str) -> Callable[..., Any]:
    """The function that makes a plugin; a name that is not in the package is a `UsageError` that lists the others."""
    known = names(package)
    if name not in known:
        raise UsageError(f"there is no {kind} {name!r}; there are: {', '.join(known)}")
    return cast(Callable[..., Any], getattr(importlib.import_module(f"{package}.{name}"), name))


def call(package: str, kind: str, name: str, options: Mapping[str, Any]) -> Any:
    """What the function of that name makes; an unknown name or option is a `UsageError`."""
    factory = function(package, kind, name)
    signature = inspect.signature(factory)
    try:
        signature.bind(**options)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "none"
        raise UsageError(f"the {kind} {name!r} can't be made: {error}; its options are: {takes}") from None
    return factory(**options)


@functools.cache
def facts(package: str, kind: str, name: str) -> Any:
    """What a plugin's file says in its `FACTS`; one that says nothing is a `UsageError`."""
    function(package, kind, name)
    found = getattr(sys.modules[f"{package}.{name}"], "FACTS", None)
    if found is None:
        raise UsageError(f"the {kind} {name!r} has no FACTS: write them into {package}.{name}, as the others have them")
    return found


def run_file(path: Path, name: str) -> ModuleType:
    """Somebody else's file as a module of that name; its folder is on the path while it runs, for its neighbours."""
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file: its name must end with .py")
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made  # dataclasses and the like look their module up
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(made)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.resolve().parent))
    return made
