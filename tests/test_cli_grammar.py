"""One grammar for all verbs: what every verb has, and what an option means wherever it stands."""

import os
import re
import subprocess
import sys
from collections import defaultdict

import pytest
import typer
from typer.testing import CliRunner

from tacit.cli import PANELS, app

FLAGS = {"--json", "--quiet"}
SHARED = {  # one meaning each: the first words of the help text
    "--json": "Print one JSON document",
    "--quiet": "No progress and no advice",
    "--data": "A data set",
    "--rows": "Use only so many",
    "--epochs": "How often every",
    "--seeds": "With how many seeds",
    "--protect": "Names, as",
    "--device": "cpu, cuda, or auto",
    "--cache": "Where large data sets",
    "--learning-rate": "Of Adam",
}
METAVARS = {"--rows": "N", "--epochs": "N", "--seeds": "N", "--limit": "AUC", "--folder": "DIR"}


def walk(command, path):
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
    else:
        for name, verb in inner.items():
            yield from walk(verb, f"{path} {name}")


VERBS = dict(walk(typer.main.get_command(app), "tacit"))
each_verb = pytest.mark.parametrize("path", VERBS)


def options(path):
    return {name: one for one in VERBS[path].params if one.param_type_name == "option" for name in one.opts}


def test_all_verbs_are_found():
    assert {"tacit train", "tacit check"} <= set(VERBS)


@each_verb
def test_every_verb_takes_json_and_quiet(path):
    assert set(options(path)) >= FLAGS
    assert "-q" in options(path)["--quiet"].opts


@each_verb
def test_the_help_is_a_sentence_and_has_an_example(path):
    first, *rest = VERBS[path].help.strip().split("\n\n")
    first = " ".join(first.split())
    assert re.fullmatch(r"[A-Z].{10,130}[.?]", first), first
    examples = re.findall(r"`(.*tacit [^`]+)`", "\n\n".join(rest))
    assert any(path in example for example in examples), f"{path} has no example of its own"


@each_verb
def test_examples_are_commands_that_can_be_parsed(path):
    """Every option of an example is one that the verb has."""
    for example in re.findall(rf"`({path} [^`]+)`", VERBS[path].help):
        known = {name for one in VERBS[path].params for name in (*one.opts, *one.secondary_opts)}
        used = [word for word in example.split() if re.fullmatch(r"--[a-z-]+", word)]
        assert set(used) <= known, example


@each_verb
def test_options_are_readable(path):
    for name, one in options(path).items():
        if name == "--help":
            continue
        assert one.help, f"{path} {name} says nothing"
        assert one.help[0].isupper() or one.help[0] in "`0123456789c", f"{path} {name}: {one.help}"
        choices = one.type_descriptor.choices
        assert one.metavar is not None or choices, f"{path} {name} shows a type of Python, not a word"
        assert one.metavar is None or re.fullmatch(r"[A-Z=,|]*", one.metavar), f"{path} {name}: {one.metavar}"


def test_options_named_alike_mean_the_same():
    seen = defaultdict(list)
    for path in VERBS:
        for name, one in options(path).items():
            seen[name].append((path, one))
    for name, words in SHARED.items():
        assert seen[name], name
        for path, one in seen[name]:
            assert one.help.startswith(words), f"{path} {name}: {one.help}"
    for name, metavar in METAVARS.items():
        for path, one in seen[name]:
            assert one.metavar == metavar or one.type_descriptor.choices, f"{path} {name}"
    for path, one in seen["--out"]:
        assert one.metavar in ("DIR", "FILE", "DIR|URI"), path


def test_every_verb_stands_in_a_panel():
    shown = CliRunner().invoke(app, ["--help"], terminal_width=80).output
    for panel, verbs in PANELS.items():
        assert panel in shown
        for verb in verbs:
            assert re.search(rf"│ {verb.__name__} ", shown), verb.__name__


@pytest.mark.parametrize("width", [60, 80])
def test_help_fits(width):
    for path in VERBS:
        done = CliRunner().invoke(app, [*path.split()[1:], "--help"], terminal_width=width, env={"COLUMNS": str(width)})
        assert done.exit_code == 0, done.output
        assert max(map(len, done.output.splitlines())) <= width, path


def test_help_is_there_at_once_and_imports_nothing_heavy():
    code = "import sys; sys.argv = ['tacit', 'train', '--help']\nfrom tacit.cli import main\n" \
        "try:\n    main()\nexcept SystemExit:\n    pass\n" \
        "print([name for name in ('torch', 'polars', 'cryptography') if name in sys.modules])"  # fmt: skip
    begun = os.times()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    spent = os.times()
    assert spent.children_user + spent.children_system - begun.children_user - begun.children_system < 5, "CPU seconds"
