"""Tables that fit the terminal: words are broken over lines, figures never; where that is not enough, in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WORDS = 14  # the least that a column of words is broken to


def console(most: int | None = None) -> Console:
    """The terminal, as wide as it is or at most so wide; numbers keep the colour that they are given."""
    from rich.console import Console

    made = Console(highlight=False)
    if most is not None:
        made.width = min(made.width, most)
    return made


def narrow(spelled: str) -> str:
    """An attack or protection with its options on lines of their own, for a narrow column."""
    return spelled.replace("(", "\n(").replace(", ", ",\n")


def print_table(
    title: str | None, head: Sequence[str], rows: Sequence[Sequence[str] | None], *, words: Sequence[int] = (0,),
    on: Console | None = None,
) -> None:  # fmt: skip
    """Print a table; where its columns do not fit beside each other, as several that all begin with the first one.

    Args:
        title: above it.
        head: the names of the columns.
        rows: their cells, which may hold markup; None is a line between two parts.
        words: the places of columns whose cells are words and may be broken; all others hold figures.
        on: where to print it; the terminal if not given.
    """
    screen = on or console()
    first, *rest = range(len(head))
    widths = {place: _width([head[place], *(row[place] for row in rows if row)]) for place in range(len(head))}
    least = {place: min(width, _WORDS) if place in words else width for place, width in widths.items()}
    parts: list[list[int]] = [[]]
    for place in rest:
        if parts[-1] and 1 + sum(least[one] + 3 for one in (first, *parts[-1], place)) > screen.width:
            parts.append([])
        parts[-1].append(place)
    for number, part in enumerate(parts):
        made = _table(title if number == 0 else None, head, [first, *part], words, least)
        for row in rows:
            if row is None:
                made.add_section()
            else:
                made.add_row(*(row[place] for place in (first, *part)))
        screen.print(made)


def _table(
    title: str | None, head: Sequence[str], places: Sequence[int], words: Sequence[int], least: dict[int, int]
) -> Table:
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title)
    for place in places:
        if place in words:
            made.add_column(head[place], overflow="fold", min_width=least[place])
        else:
            made.add_column(head[place], justify="right", no_wrap=True)
    return made


def _width(cells: Sequence[str]) -> int:
    """Of the widest line, without markup."""
    from rich.text import Text

    return max(line.cell_len for cell in cells for line in Text.from_markup(cell).split("\n", allow_blank=True))
