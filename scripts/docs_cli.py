"""The page of the command line, from the app itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from docs_tables import HEAD, cell, grid
from tacit.cli import PANELS, app
from tacit.cli import _ending as ending

_INTRO = """\
`tacit VERB --help` shows the same in the terminal. Every verb takes two more options. With `--json` the output is one
JSON document and nothing else, and progress goes to the error stream. With `--quiet` (`-q`) there is no progress and no
advice, only the result. Where the error stream is not a terminal, progress is a line now and then.

`tacit --version` prints the version. `tacit --debug VERB ...`, or `TACIT_DEBUG=1` in the environment, shows a traceback
with every error. Without it an error is one line that says what happened, to which file or field, and what to do next.

Verbs of a party take its folder as `--folder DIR`; those that show `[DIR]` also take it as a plain word. Without either
it is the folder that you are in.

`tacit --install-completion` lets your shell (bash, zsh, fish) complete verbs, options and the names of protections,
attacks and data sets; `tacit --show-completion` prints the script that does so."""

_EVERYWHERE = ("help", "as_json", "quiet")
"""Options of every verb, which the page explains once."""

_FOLDER = ("The party's folder.", "The party's folder, as with --folder.")
"""What is said of the party's folder, which the page explains once as well."""

_CODES = (
    ("0", "done"),
    ("1", "a finding: a limit is broken or could not be judged, a check fails, `tacit check` found a problem"),
    (str(ending.USAGE), "wrong use, or a file or disk that refuses"),
    (str(ending.PEER), "the peer or the network"),
    (str(ending.BUG), "a bug in tacit; `--debug` shows where"),
    (
        str(ending.AGAIN),
        "to be given again later, and then it resumes: a party was not there, gave up, or has a full disk",
    ),
    (str(ending.INTERRUPTED), "interrupted; the message says what is kept"),
    (str(ending.CLOSED), "whoever read the output went away, as `head` does"),
)


def command_line() -> str:
    root: Any = typer.main.get_command(app)
    parts = [f"{HEAD}# The command line", _INTRO, "## Exit codes", grid(("code", "meaning"), _CODES)]
    for panel, verbs in PANELS.items():
        parts.append(f"## {panel}")
        names = [verb.__name__ for verb in verbs]
        parts += [text for name in names for text in one(f"tacit {name}", root.commands[name])]
    return "\n\n".join(parts) + "\n"


def one(path: str, command: Any) -> Iterator[str]:
    """A verb, or all verbs of a group."""
    inner = getattr(command, "commands", None)
    if inner is not None:
        for name, verb in inner.items():
            yield from one(f"{path} {name}", verb)
        return
    arguments = [argument for argument in command.params if argument.param_type_name == "argument"]
    spelled = [argument.metavar if argument.required else f"[{argument.metavar}]" for argument in arguments]
    yield f"### `{' '.join([path, *spelled])}`"
    told = inspect.cleandoc(command.help)
    in_lines = re.sub(r"^Examples:\n((?:\n`.*`\n?)+)", in_a_line, told, flags=re.MULTILINE).strip()
    summary, _, rest = re.sub(r"\n\n(Examples?: )", r" \1", in_lines).partition("\n\n")
    yield f"{summary}\n{rest}".strip()
    if table := options(command):
        yield table


def in_a_line(examples: re.Match[str]) -> str:
    """The examples of a verb, which stand apart from each other in the terminal."""
    return f"Examples: {', '.join(examples[1].split(chr(10) * 2)).strip()}\n"


def options(command: Any) -> str:
    lines = []
    for option in command.params:
        if option.name in _EVERYWHERE:
            continue
        names = [option.metavar] if option.param_type_name == "argument" else [*option.opts, *option.secondary_opts]
        said, default = told(option)
        if said in _FOLDER:
            continue
        lines.append((", ".join(f"`{name}`" for name in names), value(option), default, cell(said)))
    return grid(("option", "value", "default", "what it is"), lines) if lines else ""


def value(option: Any) -> str:
    """What the option takes, with its bounds; nothing for a flag."""
    if option.param_type_name == "argument" or option.metavar == "":
        return ""
    if option.metavar is None:
        return " or ".join(f"`{choice}`" for choice in option.type_descriptor.choices or ())
    bounds = [(">=", option.min), ("<=", option.max)]
    return " ".join([f"`{option.metavar}`", *(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)])


def told(option: Any) -> tuple[str, str]:
    """The help text, and the default, which may stand in it."""
    said, found, default = option.help.partition("[default: ")
    if found:
        return said.strip(), default.removesuffix("]")
    if option.required:
        return said, "must be given"
    return said, "" if option.default in (None, False) else f"`{shown(option)}`"


def shown(option: Any) -> str:
    return option.opts[0] if option.default is True else str(option.default)
