"""Finding plugins by listing a package: one public file is one plugin, and the file's name is the plugin's name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from tacit.errors import UsageError


class Described(NamedTuple):
    """What an attack's docstring says of it, each as one line of text.

    Attributes:
        about: what it does, in one sentence.
        knows: what it uses of the view and of what is granted.
        costs: how much work it is.
    """

    about: str
    knows: str
    costs: str


def modules(package: str) -> list[str]:
    """The sorted names of a package's public modules; private ones start with an underscore."""
    path = importlib.import_module(package).__path__
    return sorted(found.name for found in pkgutil.iter_modules(path) if not found.name.startswith("_"))


def function(package: str, kind: str, name: str) -> Callable[..., Any]:
    """The function of the same name as its module, which must be one of the package's own."""
    known = modules(package)
    if name not in known:
        raise UsageError(f"there is no {kind} named {name!r}; the known ones are: {', '.join(known)}")
    return cast(Callable[..., Any], getattr(importlib.import_module(f"{package}.{name}"), name))


def call(package: str, kind: str, name: str, options: Mapping[str, Any]) -> Any:
    """Call the function of that name; an option that it does not take is an error which lists those it does."""
    made = function(package, kind, name)
    signature = inspect.signature(made)
    try:
        signature.bind(**options)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "none"
        raise UsageError(f"the {kind} {name!r} can't be built: {error}; its options are: {takes}") from None
    return made(**options)


def describe(package: str, kind: str, name: str) -> Described:
    """The first sentence of a function's docstring, and what stands there after `Knows:` and `Costs:`."""
    about, *rest = inspect.cleandoc(function(package, kind, name).__doc__ or "").splitlines()
    return Described(about, _told(rest, "Knows:"), _told(rest, "Costs:"))


def _told(lines: Sequence[str], word: str) -> str:
    """What follows a word that begins a line, with the lines after it that are set in."""
    start = next((place for place, line in enumerate(lines) if line.startswith(word)), None)
    if start is None:
        return ""
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].startswith(" ")), len(lines))
    return " ".join(" ".join(lines[start:end]).removeprefix(word).split())
