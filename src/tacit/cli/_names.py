"""Names that the shell completes, and that are listed without importing what they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tacit.plugins import names


def modules(*way: str) -> list[str]:
    """The public modules of a folder of ours, which are the names of what is in it, sorted."""
    return names(".".join(["tacit", *way]))


def protections() -> list[str]:
    """Of the gradient."""
    return modules("protect", "gradient")


def attacks() -> list[str]:
    """On labels."""
    return modules("audit", "attacks")


def data_sets() -> list[str]:
    """Those that the lab knows by name."""
    from tacit.lab.data import SOURCES

    return sorted(SOURCES)


def complete(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What typer asks for the values of an option that takes one of these names."""

    def found(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return found


def complete_list(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """The same for an option that takes several, with commas between them."""

    def found(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = before.split(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last) and name not in taken]

    return found
