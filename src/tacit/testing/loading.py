"""Somebody else's file: what it makes, or what is wrong with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tacit.contracts import EmbeddingProtection, Protection
from tacit.errors import UsageError
from tacit.plugins import run_file
from tacit.testing.examining import where


@dataclass(frozen=True)
class Loaded:
    """What a file made."""

    file: Path  # where it came from
    factory: str  # the name of what was called
    options: Mapping[str, object]  # what it was called with
    protection: Protection | EmbeddingProtection  # what it returned

    @property
    def spelled(self) -> str:
        """As it would be written in code."""
        return f"{self.factory}({', '.join(f'{key}={value!r}' for key, value in self.options.items())})"


def load(spec: str, options: Mapping[str, object]) -> Loaded:
    """The protection that a file makes."""
    path, _, name = spec.rpartition(":") if not spec.endswith(".py") else (spec, "", "")
    file = Path(path or spec)
    if not file.is_file():
        raise UsageError(f"{file}: there is no such file: pass a Python file, or file.py:factory")
    module = _module(file)
    chosen, factory = _factory(file, module, name)
    made = _made(file, chosen, factory, options)
    gradient = not isinstance(made, type) and callable(made) and hasattr(made, "init") and hasattr(made, "update")
    if not gradient and not isinstance(made, EmbeddingProtection):
        raise UsageError(
            f"{file}: {chosen}() made a {type(made).__name__}, which is no protection: one of gradients has init, "
            "update and __call__, one of embeddings has name, event, transform and regularizer"
        )
    return Loaded(file, chosen, dict(options), made)


def _module(file: Path) -> ModuleType:
    """The file's module, run as Python runs a script: what lies beside it can be imported."""
    try:
        return run_file(file, f"tacit_conformance.{file.stem}")  # its last part names it, as for our own protections
    except UsageError:
        raise
    except SyntaxError as error:
        line = f", line {error.lineno}: {(error.text or '').strip()}" if error.lineno else ""
        raise UsageError(f"{file}{line}: {error.msg}: correct it") from None
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything at all
        raise UsageError(
            f"{file} can't be imported: {type(error).__name__}: {error}{where(error, file.resolve())}: "
            f"see that `python {file}` runs"
        ) from error


def _factory(file: Path, module: ModuleType, name: str) -> tuple[str, Callable[..., Any]]:
    """What makes the protection: the one that is named, the one with the file's name, or the only one there is."""
    known = _candidates(module)
    if name and not callable(getattr(module, name, None)):
        has = f"it has: {', '.join(known)}" if known else "it has no public function"
        raise UsageError(f"{file} has no function {name!r}; {has}")
    if not name and not known:
        raise UsageError(f"{file} has nothing that makes a protection: write a function that returns one")
    if not name and len(known) > 1 and file.stem not in known:
        raise UsageError(
            f"{file} has several functions that could make the protection, {', '.join(known)}: say which, as "
            f"{file}:{known[0]}"
        )
    chosen = name or (file.stem if file.stem in known else known[0])
    return chosen, getattr(module, chosen)


def _candidates(module: ModuleType) -> list[str]:
    """The public functions that a file itself defines; where there are none, its classes that look like protections."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    own = {name: value for name, value in public.items() if getattr(value, "__module__", None) == module.__name__}
    looks = ("update", "transform")
    classes = [n for n, v in own.items() if inspect.isclass(v) and any(hasattr(v, method) for method in looks)]
    return [name for name, value in own.items() if inspect.isfunction(value)] or classes


def _made(file: Path, name: str, factory: Callable[..., Any], options: Mapping[str, object]) -> Any:
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise UsageError(
            f"{file}: {name}: {error}; it takes {inspect.signature(factory)}: give options as --option name=value"
        ) from None
    try:
        return factory(**options)
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything at all
        line = where(error, file.resolve())
        raise UsageError(
            f"{file}: {name}() raised {type(error).__name__}: {error}{line}: look at its options"
        ) from error
