"""The verbs that help: explain, which shows the docs in the terminal, and doctor.

`tacit explain` shows the pages that the package carries, and what protections, attacks and metrics say of themselves,
which is read from their source without importing it, so that the list is there at once.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tacit
from tacit.cli._options import Folder, Json, Quiet, Where, argument, complete, party_folder
from tacit.cli._show import console, plain, print_table
from tacit.errors import UsageError
from tacit.plugins import names
from tacit.views.progress import one_bar

if TYPE_CHECKING:
    from tacit.company.doctor import Finding


def explain(
    topic: Annotated[
        str | None,
        argument(
            "A page, a protection, an attack or a metric. [default: list all]",
            "TOPIC",
            autocompletion=complete(lambda: dict.fromkeys(one.name for one in topics())),
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

    screen, page = console(100), Markdown(text)
    if paged and len(screen.render_lines(page)) > screen.height - 2:
        os.environ.setdefault("LESS", "-R")  # colours as such, where the pager is less and nobody has said otherwise
        with screen.pager(styles=True):
            screen.print(page)
    else:
        screen.print(page)


# --- topics ----------------------------------------------------------------------------------------------------------

_ROOT = Path(tacit.__file__).parent
_PAGES = {"explain": "Explanations", "tutorial": "Tutorials", "howto": "How-tos", "ref": "Reference", "": "Results"}
_PLUGINS = {
    ("protect", "gradient"): "Protections of the gradient",
    ("protect", "embedding"): "Protections of the embedding",
    ("protect", "labels"): "Protections of labels",
    ("audit", "attacks"): "Attacks on labels",
    ("audit", "input_attacks"): "Attacks on inputs",
    ("audit", "metrics"): "Metrics",
}
KINDS = (*_PAGES.values(), *_PLUGINS.values())
"""Of topics, in the order in which they are listed."""

_ALIASES = {
    "auc": "what-leaks", "attack": "attacks", "config": "party-toml", "contract": "party-toml", "data": "data-sets",
    "embedding": "embeddings", "leak": "what-leaks", "leak-auc": "what-leaks", "limit": "set-a-limit",
    "party": "party-toml", "patents": "matched", "protection": "protections", "report": "read-a-report",
    "settings": "party-toml", "strength": "choose-a-strength", "sweep": "choose-a-strength", "visits": "ledger",
}  # fmt: skip


@dataclass(frozen=True)
class Topic:
    """One thing that can be shown."""

    name: str  # what to ask for
    kind: str  # one of `KINDS`
    about: str  # it, in one line
    page: str  # the file that it stands in, without its ending
    text: str  # all of it, as Markdown


def topics() -> list[Topic]:
    """Everything that can be shown, by kind and name."""
    found = [_page(path) for path in sorted((_ROOT / "docs").glob("*.md")) if path.stem != "index"]
    if not found:
        raise UsageError(f"{_ROOT / 'docs'} holds no page: install tacit anew, or read docs/ in its repository")
    known = {one.name for one in found}
    twice = {name for name in known if sum(one.name == name for one in found) > 1}
    long = ("Reference", "Tutorials")  # which go by the whole name, where another page has the short one
    found = [replace(one, name=one.page) if one.name in twice and one.kind in long else one for one in found]
    found += [_plugin(way, name) for way in _PLUGINS for name in names(".".join(["tacit", *way]))]
    return sorted(found, key=lambda one: (KINDS.index(one.kind), one.name))


def find(asked: str) -> list[Topic]:
    """What is meant by a name: a page, a protection, an attack, a metric, or several of one name; dashes are lines."""
    known = topics()
    wanted = asked.strip().lower().removesuffix(".md").replace("_", "-")
    also = _ALIASES.get(wanted, wanted)
    meant = [one for one in known if {wanted, also} & {one.name.replace("_", "-"), one.page}]
    if meant:
        return meant
    names = sorted({*(one.name for one in known), *(one.page for one in known), *_ALIASES})
    near = [one for one in names if wanted in one][:3] or difflib.get_close_matches(wanted, names, n=3)
    said = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(f"there is no topic {asked!r}: {said}`tacit explain` lists all")


def text_of(meant: list[Topic]) -> str:
    """The text of all that is meant; links to other pages become the command that shows them."""
    whole = "\n\n".join(one.text.strip() for one in meant)
    whole = re.sub(r"<!--.*?-->\s*", "", whole, flags=re.DOTALL)
    whole = re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"(picture: \1)", whole)
    return re.sub(r"\[([^\]]+)\]\(([a-z0-9-]+)\.md[^)]*\)", _command, whole) + "\n"


def _command(link: re.Match[str]) -> str:
    words = link[1] if not link[1].endswith(".md") else link[2]
    return f"{words} (`tacit explain {_split(link[2])[1]}`)"


def _split(stem: str) -> tuple[str, str]:
    kind, dash, name = stem.partition("-")
    return (kind, name) if dash and kind in _PAGES else ("", stem)


def _page(path: Path) -> Topic:
    kind, name = _split(path.stem)
    text = path.read_text(encoding="utf-8")
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    return Topic(name, _PAGES[kind], heading[1] if heading else name, path.stem, text)


def _plugin(way: tuple[str, str], name: str) -> Topic:
    source = ast.parse(_ROOT.joinpath(*way, f"{name}.py").read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    told = next((ast.get_docstring(part) for part in source.body if isinstance(part, kinds) and part.name == name), "")
    said = (told or ast.get_docstring(source) or "").partition(">>>")[0].strip()
    page = {"gradient": "protections", "embedding": "protections", "attacks": "attacks", "input_attacks": "attacks"}
    shown = f"ref-{page.get(way[-1], 'api')}"
    text = f"## `{name}`: {_PLUGINS[way].lower()}\n\n```text\n{said}\n```"
    return Topic(name, _PLUGINS[way], said.partition("\n")[0], shown, text)


# --- doctor ----------------------------------------------------------------------------------------------------------

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def doctor(where: Where = None, folder: Folder = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Check this machine and a party's folder, and say what to do about what is wrong.

    Versions, extras, GPU, clock and disk are those of the machine; keys, certificates, settings, data, port, the way to
    the peer and what runs are those of the folder, which is left out where none is named and none is here. Nothing is
    changed, and nothing is sent but a TLS handshake. With --quiet only what is wrong is told.

    Example: `tacit doctor --folder airline`

    Exit codes: 0 all is well or there are warnings alone, 1 there is a problem.
    """
    from tacit.company.doctor import examine

    named = where is not None or folder is not None
    path = party_folder(where, folder)
    wanted = path if named or (path / "party.toml").is_file() else None
    with one_bar(quiet=quiet, first="looking", unit="checks") as show:
        found = examine(wanted, progress=show)
    worst = "problem" if any(one.verdict == "problem" for one in found) else "ok"
    if as_json:
        typer.echo(json.dumps({"verdict": worst, "checks": [asdict(one) for one in found]}, indent=2))
    else:
        _print([one for one in found if one.verdict != "ok"] if quiet else found)
    if worst == "problem":
        raise typer.Exit(1)


def _print(found: list[Finding]) -> None:
    from rich.markup import escape
    from rich.padding import Padding

    screen = console(110)
    for one in found:
        colour = _COLOURS[one.verdict]
        screen.print(f"[{colour}]{one.verdict:<8}[/{colour}] [bold]{one.name}[/bold]")
        screen.print(Padding(escape(plain(one.seen)), (0, 0, 0, 9)))
        if one.do:
            screen.print(Padding(f"[{colour}]To do:[/{colour}] {escape(plain(one.do))}", (0, 0, 0, 9)))
