"""How a command ends: one line and an exit code; a traceback for `--debug` alone; silence where nobody reads."""

import os
import subprocess
import sys

import pytest
import typer

from tacit.cli import main
from tacit.cli._ending import end_with, interruptible
from tacit.company.folder import create
from tacit.errors import DiskFullError, GaveUpError, LimitError, LinkError, RefusedError, UsageError


@pytest.fixture(name="told")
def _told(monkeypatch, capsys):
    """Run the command line in this process: the exit code, the output, the error stream."""
    monkeypatch.delenv("TACIT_DEBUG", raising=False)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["tacit", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


def end(error, capsys):
    def fail():
        raise error

    with pytest.raises(SystemExit) as ended:
        end_with(fail)
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UsageError("x: do y"), 2, "tacit: x: do y\n"),
        (LimitError("over: stop"), 1, "tacit: over: stop\n"),
        (LinkError("gone: wait"), 3, "tacit: gone: wait\n"),
        (RefusedError("contract", "differs: compare"), 3, "tacit: differs: compare\n"),
        (GaveUpError("wait", "x was not there: later"), 75, "tacit: x was not there: later\n"),
        (DiskFullError("no room: make some"), 75, "tacit: no room: make some\n"),
        (PermissionError(13, "Not permitted", "/x/p.toml"), 2, "tacit: /x/p.toml: Not permitted: look at who owns it"),
        (IsADirectoryError(21, "Is a directory", "/x/c.toml"), 2, "tacit: /x/c.toml: Is a directory: look at the disk"),
        (OSError("something else"), 2, "tacit: something else: look at the disk"),
        (typer.Abort(), 130, "tacit: interrupted\n"),
        (KeyError("a\nb"), 70, "tacit: this is a bug in tacit, not a mistake of yours: KeyError: 'a\\nb' (_ending.py"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)  # fmt: skip
def test_an_error_is_one_line_and_an_exit_code(monkeypatch, capsys, error, code, words):
    monkeypatch.delenv("TACIT_DEBUG", raising=False)
    ended, said = end(error, capsys)
    assert ended == code
    assert said.startswith(words), said
    assert said.count("\n") == 1


def test_a_bug_says_how_to_see_it(monkeypatch, capsys):
    monkeypatch.delenv("TACIT_DEBUG", raising=False)
    assert "`tacit --debug`" in end(ZeroDivisionError("division by zero"), capsys)[1]


@pytest.mark.parametrize("asked", ["1", "yes"])
def test_debug_shows_a_traceback_and_the_same_code(monkeypatch, capsys, asked):
    monkeypatch.setenv("TACIT_DEBUG", asked)
    for error, code in ((UsageError("x: do y"), 2), (KeyError("a"), 70)):
        ended, said = end(error, capsys)
        assert ended == code
        assert said.startswith("Traceback")
        assert said.splitlines()[-1].startswith("tacit: ")


def test_debug_as_an_option(told, monkeypatch, tmp_path):
    monkeypatch.setenv("TACIT_DEBUG", "0")  # what --debug sets is put back after the test
    code, _, said = told("status", "--folder", tmp_path)
    assert (code, said.count("\n")) == (2, 1)
    code, _, said = told("--debug", "status", "--folder", tmp_path)
    assert code == 2
    assert "Traceback" in said
    assert os.environ["TACIT_DEBUG"] == "1", "processes that we start know it too"


def test_an_interruption_is_one_line(told, monkeypatch, tmp_path):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tacit.report.status.read", stop)
    assert told("status", "--folder", tmp_path) == (
        130, "", "tacit: interrupted; give the same command again to start over\n",
    )  # fmt: skip
    monkeypatch.setattr("tacit.split.train.train", stop)
    monkeypatch.setattr("tacit.company.agreed.check_agreed", lambda _: None)
    party = create(tmp_path / "airline", role="label").path
    code, _, said = told("train", "--folder", party)
    assert code == 130, said
    assert said == f"tacit: interrupted; what was answered is in {party / 'runs'}: the same command resumes\n"


def test_what_is_kept_is_said_when_it_is_interrupted():
    kept = []

    def words():
        kept.append(1)
        return "3 are kept"

    with pytest.raises(Exception, match="interrupted; 3 are kept"), interruptible(words):
        raise KeyboardInterrupt
    with interruptible(words):
        pass
    assert len(kept) == 1


@pytest.mark.parametrize("words", ["--help", "sweep --help"])
def test_a_reader_that_goes_away_is_no_error(words):
    """As after `| head -0`: no word, and no traceback."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "tacit", *words.split()], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(write)
    assert done.stderr == ""
    assert done.returncode == 141


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "tacit: no such command 'trian'. Did you mean 'train'? see `tacit --help`\n"),
        (["sweep", "--protct"], "tacit: there is no option --protct: did you mean --protect? see `tacit sweep"),
        (["train", "--debug"], "tacit: --debug goes before the verb, as in `tacit --debug`; see `tacit train"),
        (["init", "x"], "tacit: missing option '--role'. Choose from: label, features; see `tacit init --help`\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)  # fmt: skip
def test_a_wrong_command_line_is_one_line_with_the_nearest_right_one(told, words, said):
    code, out, line = told(*words)
    assert (code, out, line.count("\n")) == (2, "", 1)
    assert line.startswith(said)


def test_no_arguments_show_the_help(told):
    code, out, said = told()
    assert "Between companies" in out
    assert (code, said) == (2, "")


def test_the_version(told):
    import tacit

    assert told("--version") == (0, f"tacit {tacit.__version__}\n", "")
