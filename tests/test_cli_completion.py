"""Completion, in a real bash: verbs, options, and the names that options take."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.cli._options import complete, complete_list

SCRIPT = r"""
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_tacit_completion tacit
printf '%s\n' "${COMPREPLY[@]}"
"""


def script_of(shell):
    """What makes a shell complete, as `tacit --show-completion` prints it in that shell."""
    done = subprocess.run(
        [sys.executable, "-m", "tacit"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "_TACIT_COMPLETE": f"source_{shell}"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(name="press_tab", scope="module")
def _press_tab(tmp_path_factory):
    """What bash would offer after these words."""
    where = tmp_path_factory.mktemp("completion")
    script = where / "tacit.bash"
    script.write_text(script_of("bash"))
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
        (["tr"], ["train", "trust"]),
        (["sweep", "--pro"], ["--protect"]),
        (["sweep", "--protect", "iso,ma"], ["iso,marvell", "iso,matched", "iso,max_norm"]),
        (["sweep", "--data", "generated:a"], ["generated:adult", "generated:avazu"]),
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
    assert f"_TACIT_COMPLETE=complete_{shell}" in script_of(shell)


def test_the_script_of_bash_is_bash(tmp_path):
    script = Path(tmp_path / "script")
    script.write_text(script_of("bash"))
    assert subprocess.run(["bash", "-n", script], capture_output=True, timeout=60).returncode == 0
