"""The verb explain."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from tacit.cli._names import complete
from tacit.cli._options import Json, Quiet, argument
from tacit.cli._tables import console, print_table


def _topics() -> list[str]:
    from tacit.cli._topics import topics

    return list(dict.fromkeys(one.name for one in topics()))


def explain(
    topic: Annotated[
        str | None,
        argument(
            "A page, a protection, an attack or a metric. [default: list all]",
            "TOPIC",
            autocompletion=complete(_topics),
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show a page of the docs in the terminal.

    On a terminal a long page goes through your pager, which --quiet leaves out; in a pipe it is plain Markdown. Exit
    code 2 where there is no such topic; the nearest ones are named.

    Examples:

    `tacit explain`

    `tacit explain what-leaks`

    `tacit explain marvell`
    """
    from tacit.cli._topics import find, text_of

    if topic is None:
        _list(as_json=as_json)
        return
    meant = find(topic)
    text = text_of(meant)
    if as_json:
        typer.echo(json.dumps({"topic": meant[0].name, "page": meant[0].page, "text": text}))
    elif sys.stdout.isatty():
        _show(text, paged=not quiet)
    else:
        typer.echo(text, nl=False)


def _list(*, as_json: bool) -> None:
    from rich.markup import escape

    from tacit.cli._topics import KINDS, topics

    found = topics()
    if as_json:
        told = [{"topic": one.name, "kind": one.kind, "about": one.about, "page": one.page} for one in found]
        typer.echo(json.dumps(told, indent=2))
        return
    for kind in KINDS:
        rows = [[one.name, escape(one.about.replace("`", ""))] for one in found if one.kind == kind]
        if rows:
            print_table(kind, ["topic", "about"], rows, words=(0, 1), on=console(110))


def _show(text: str, *, paged: bool) -> None:
    from rich.markdown import Markdown

    screen = console(100)
    page = Markdown(text)
    if paged and len(screen.render_lines(page)) > screen.height - 2:
        os.environ.setdefault("LESS", "-R")  # colours as such, where the pager is less and nobody has said otherwise
        with screen.pager(styles=True):
            screen.print(page)
    else:
        screen.print(page)
