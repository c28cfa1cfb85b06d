"""Completion, in a real bash: verbs, options, and the names that options take."""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.cli._names import complete, complete_list
from tacit.cli.completion import ready_for_completion
from tacit.errors import UsageError

SCRIPT = r"""
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_tacit_completion tacit
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(name="press_tab", scope="module")
def _press_tab(tmp_path_factory):
    """What bash would offer after these words."""
    where = tmp_path_factory.mktemp("completion")
    script = where / "tacit.bash"
    script.write_text(CliRunner().invoke(app, ["completion", "bash", "--quiet"]).stdout)
    command = where / "tacit"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tacit "$@"\n')
    command.chmod(0o755)
    path = f"{where}{os.pathsep}{os.environ['PATH']}"

    def offered(*words):
        done = subprocess.run(
            ["bash", "-c", SCRIPT, "bash", script, "tacit", *words],
            capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": path},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout.split()

    return offered


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (["tra"], ["train", "track"]),
        (["sweep", "--pro"], ["--protect"]),
        (["sweep", "--protect", "iso,ma"], ["iso,marvell", "iso,matched", "iso,max_norm"]),
        (["sweep", "--data", "generated:a"], ["generated:adult", "generated:avazu"]),
        (["explain", "leak"], ["leak-auc", "leak_auc"]),
        (["init", "--role", ""], ["label", "features"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_bash_offers(press_tab, words, some):
    assert set(some) <= set(press_tab(*words))


def test_a_name_that_is_taken_is_not_offered_again():
    offer = complete_list(lambda: ["iso", "marvell"])
    assert offer("iso,") == ["iso,marvell"]
    assert offer("") == ["iso", "marvell"]
    assert complete(lambda: ["a", "b"])("b") == ["b"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(shell):
    done = CliRunner().invoke(app, ["completion", shell])
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"_TACIT_COMPLETE=complete_{shell}" in done.stdout
    found = json.loads(CliRunner().invoke(app, ["completion", shell, "--json"]).stdout)
    assert (found["shell"], found["script"]) == (shell, done.stdout.rstrip("\n"))


def test_the_script_of_bash_is_bash(tmp_path):
    script = Path(tmp_path / "script")
    script.write_text(CliRunner().invoke(app, ["completion", "bash"]).stdout)
    assert subprocess.run(["bash", "-n", script], capture_output=True, timeout=60).returncode == 0


def test_a_typer_that_keeps_its_shells_elsewhere_completes_nothing_and_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "typer._completion_shared", None)
    done = CliRunner().invoke(app, ["completion", "bash"])
    assert isinstance(done.exception, UsageError)
    assert f"typer {metadata.version('typer')}" in str(done.exception)
    monkeypatch.setitem(sys.modules, "typer._completion_classes", None)
    monkeypatch.setenv("_TACIT_COMPLETE", "complete_bash")
    ready_for_completion()
