"""The verb dashboard: what it says, what it refuses, and one that really serves."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.request

import pytest
import typer
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import UsageError
from tacit.report.web.serving import PORT, Dashboard, listen
from tacit.report.web.shelf import Shelf

WAIT = 60


@pytest.fixture(name="tacit")
def _tacit(monkeypatch, tmp_path):
    """The command in an empty folder, which says what it has to say and serves nothing."""
    monkeypatch.chdir(tmp_path)
    served = []
    monkeypatch.setattr(Dashboard, "run", lambda self: (served.append(self), self._socket.close()))

    def run(*words):
        result = CliRunner().invoke(app, ["dashboard", *map(str, words)])
        result.server = served.pop() if served else None
        return result

    return run


def test_it_says_the_address_and_how_much_there_is(tacit, tmp_path, make_run):
    make_run(tmp_path / "runs" / "a" / "runs" / "b")
    make_run(tmp_path / "elsewhere" / "runs" / "c")
    for words in ([], ["runs"]):
        done = tacit(*words, "--port", 0)
        assert done.exit_code == 0, done.output
        address, said = done.stdout.splitlines()
        assert address == f"http://127.0.0.1:{done.server.port}/?token={done.server.access.token}"
        assert said == f"1 run under {tmp_path / 'runs'}; Ctrl-C ends it"
    assert "2 runs under" in tacit("runs", "elsewhere", "--port", 0).stdout


def test_it_says_it_in_json_or_in_one_line(tacit, tmp_path):
    done = tacit("--json", "--port", 0)
    server = done.server
    assert json.loads(done.stdout) == {
        "address": server.access.address,
        "port": server.port,
        "token": server.access.token,
        "places": 0,
    }
    done = tacit("--quiet", "--port", 0)
    assert done.stdout == done.server.access.address + "\n"


def test_nothing_found_yet_is_said(tacit, tmp_path):
    done = tacit("--port", 0)
    assert done.exit_code == 0
    assert f"No run is under {tmp_path} yet" in done.stdout
    assert "tacit train" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere does not exist: name the folder"),
        (["file"], "file is no folder"),
        (["--host", "0.0.0.0"], "--allow-remote"),
        (["--host", "no such host"], "name one, such as 127.0.0.1"),
        (["--host", "192.0.2.1", "--allow-remote"], "an address of this machine"),
        (["--token-file", "file"], "chmod 600"),
    ],
)
def test_mistakes_are_said_with_the_next_act(tacit, tmp_path, words, said):
    (tmp_path / "file").write_text("x")
    (tmp_path / "file").chmod(0o644)
    done = tacit(*words)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
    assert done.server is None


def test_a_port_that_is_taken(tacit):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tacit("--port", port)
    assert str(done.exception) == (f"port {port} is taken: give another with --port, or none for the next that is free")


def test_the_next_port_that_is_free():
    first = listen("127.0.0.1", None)
    second = listen("127.0.0.1", None)
    with first, second:
        ports = first.getsockname()[1], second.getsockname()[1]
        assert PORT <= ports[0] < ports[1]


def test_a_page_that_others_can_reach_comes_with_a_warning(tacit):
    done = tacit("--host", "0.0.0.0", "--allow-remote", "--port", 0)
    assert done.exit_code == 0
    assert "plain HTTP" in done.stderr
    assert "ssh -L" in done.stderr
    assert socket.gethostname() in done.stdout


def test_a_token_that_stays_the_same(tacit, tmp_path):
    first, second = (tacit("--token-file", "token", "--port", 0).server.access.token for _ in range(2))
    assert first == second == (tmp_path / "token").read_text().strip()
    assert tacit("--port", 0).server.access.token != first


def test_a_browser_gets_the_token_by_a_file_of_its_owner(tacit, monkeypatch):
    seen = []

    def opened(address):
        path = address.removeprefix("file://")
        with open(path) as file:
            seen.append((address, file.read(), stat.S_IMODE(os.stat(path).st_mode)))
        return False

    monkeypatch.setattr("webbrowser.open", opened)
    done = tacit("--open", "--port", 0)
    ((address, text, mode),) = seen
    assert done.server.access.token not in address
    assert done.server.access.address in text
    assert mode == 0o600
    assert not os.path.exists(address.removeprefix("file://"))
    assert "no browser could be opened" in done.stderr


def test_it_starts_without_pytorch():
    code = "import sys, tacit.cli.watch, tacit.report.web.serving; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT)
    assert done.stdout == "False\n", done.stderr


def test_one_that_really_serves_and_ends_quietly(tmp_path, make_run):
    make_run(tmp_path / "a" / "runs" / "b")
    command = [sys.executable, "-m", "tacit", "dashboard", str(tmp_path), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            told = json.loads(process.stdout.readline())
            bearer = {"Authorization": f"Bearer {told['token']}"}
            asked = urllib.request.Request(f"http://127.0.0.1:{told['port']}/metrics", headers=bearer)
            with urllib.request.urlopen(asked, timeout=WAIT) as answer:
                assert b"\ntacit_runs 1.0\n" in answer.read()
            assert told["places"] == 1
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=WAIT)
        finally:
            process.kill()
    assert (process.returncode, *rest) == (0, "", "")


def test_the_address_is_said_before_a_large_tree_is_looked_through(tacit, monkeypatch):
    """Whoever waits for it need not wait for that."""
    told = []
    echo = typer.echo
    monkeypatch.setattr(typer, "echo", lambda text, **options: (told.append(text), echo(text, **options)))
    monkeypatch.setattr(Shelf, "places", lambda self: told.append("looked through") or [])
    address, looked, _ = tacit("--port", 0) and told
    assert address.startswith("http://127.0.0.1:")
    assert looked == "looked through"


def test_localhost_is_said_as_the_address_that_is_listened_at(tacit):
    """The name may stand for two addresses, and at the other one somebody else may listen, who would get the token."""
    server = tacit("--host", "localhost", "--port", 0).server
    assert server.access.address.startswith(("http://127.0.0.1:", "http://[::1]:"))
    assert server.access.knows("localhost")
