"""What `tacit explain` can show: the pages of the docs, and what protections, attacks and metrics say of themselves.

Pages are those that the package carries; docstrings are read from the source without importing it, so that the list is
there at once.
"""

from __future__ import annotations

import ast
import difflib
import re
from dataclasses import dataclass, replace
from pathlib import Path

import tacit
from tacit.cli._names import modules
from tacit.errors import UsageError

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
    found += [_plugin(way, name) for way in _PLUGINS for name in modules(*way)]
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
    """The kind and the name in the name of a page."""
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
