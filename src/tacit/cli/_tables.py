"""Tables that fit the terminal: lines are broken between words, figures and names never; else a table has parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_LONGEST = 30  # a word up to here is never broken
_SHORTEST = 8  # what is left of a column of words on the smallest screen


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
        words: the places of columns whose cells are words, on as many lines as it takes; all others hold figures.
        on: where to print it; the terminal if not given.
    """
    screen = on or console()
    first, *rest = range(len(head))
    cells = {place: [head[place], *(row[place] for row in rows if row)] for place in range(len(head))}
    widths = {place: _width(column) for place, column in cells.items()}
    least = {place: _longest(cells[place]) if place in words else width for place, width in widths.items()}
    parts: list[list[int]] = [[]]
    for place in rest:
        if parts[-1] and _spare(screen, least, (first, *parts[-1], place)) < 0:
            parts.append([])
        parts[-1].append(place)
    for number, part in enumerate(parts):
        places, given = [first, *part], dict(least)
        for place in places:  # what is left goes to the words, from the left; what is missing on a tiny screen, too
            spare = min(widths[place] - least[place], _spare(screen, given, places))
            given[place] = max(min(_SHORTEST, least[place]), given[place] + spare) if place in words else given[place]
        made = _table(title if number == 0 else None, head, places, words, given)
        for row in rows:
            if row is None:
                made.add_section()
            else:
                made.add_row(*(row[at] if given[at] == widths[at] else _loose(row[at]) for at in places))
        screen.print(made)


def _table(
    title: str | None, head: Sequence[str], places: Sequence[int], words: Sequence[int], widths: dict[int, int]
) -> Table:
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title)
    for place in places:
        if place in words:
            made.add_column(head[place], overflow="fold", width=widths[place])
        else:
            made.add_column(head[place], justify="right", no_wrap=True)
    return made


def _spare(screen: Console, widths: dict[int, int], places: Sequence[int]) -> int:
    """What these columns leave of the screen, with their lines and margins; below 0 where they do not fit."""
    return screen.width - 1 - sum(widths[place] + 3 for place in places)


def _loose(cell: str) -> str:
    """Names with places to break them at: before their options, and between these."""
    return re.sub(r"(?<=\w)\((?=\w)", " (", re.sub(r",(?=[a-z])", ", ", cell))


def _longest(cells: Sequence[str]) -> int:
    """The longest word, which a column is not made narrower than, unless it is longer than any should be."""
    from rich.cells import cell_len

    words = (word for cell in cells for word in _plain(_loose(cell)).split())
    return min(_LONGEST, max(map(cell_len, words), default=1))


def _plain(cell: str) -> str:
    """Without markup."""
    from rich.text import Text

    return Text.from_markup(cell).plain


def _width(cells: Sequence[str]) -> int:
    """Of the widest line, without markup."""
    from rich.cells import cell_len

    return max(cell_len(line) for cell in cells for line in _plain(cell).split("\n"))
