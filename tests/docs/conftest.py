"""Where the docs' pages run: folders with what a page takes for granted, and a shell with `tacit` on its path."""

import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tacit.company.agreed import agree
from tacit.company.folder import Folder
from tacit.exchange.train import train_one_shot
from tacit.lab import one_exchange
from tacit.lab.two_companies import prepare


def _finished(folder):
    """An airline and an airport that have trained one run; without a limit, since attacks take longer than all else."""
    companies = prepare(folder, epochs=1, rows=4096, seed=0, limit=None)
    for company in companies:
        contract = company.folder / "contract.toml"
        contract.write_text(contract.read_text().replace("airport = 128", "airport = 16"))
        agree(Folder(company.folder))
    with ThreadPoolExecutor(2) as both:
        list(both.map(lambda company: Folder(company.folder).align(), companies, timeout=120))
        list(both.map(lambda company: Folder(company.folder).train(), companies, timeout=120))
    shutil.copy(folder / "airport" / "airport.crt", folder)


def _exchanged(folder):
    """An airline and an airport that have trained in one exchange."""
    companies = one_exchange.prepare(folder, rows=1280, seed=0)
    with ThreadPoolExecutor(2) as both:
        list(both.map(lambda company: Folder(company.folder).align(), companies, timeout=120))
        list(both.map(lambda company: train_one_shot(company.folder), companies, timeout=600))
    shutil.copy(folder / "airport" / "airport.crt", folder)


_WORLDS = {"empty": lambda folder: None, "finished": _finished, "exchanged": _exchanged}


@pytest.fixture(scope="session", name="free_port")
def _free_port():
    """A function that gives a port that nobody listens on."""

    def port():
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            return str(found.getsockname()[1])

    return port


@pytest.fixture(scope="session", name="world")
def _world(tmp_path_factory, worker_id, free_port):
    """Copies of worlds in a new folder, by `name` or `name:folder`. Each is made once, by the process that is first."""
    common = tmp_path_factory.getbasetemp()
    common = (common if worker_id == "master" else common.parent) / "worlds"
    common.mkdir(exist_ok=True)

    def copied(names):
        here = tmp_path_factory.mktemp("page")
        for name, _, inner in (one.partition(":") for one in names):
            made = common / name
            with (common / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not made.exists():
                    part = common / f"{name}.part"
                    part.mkdir()
                    with pytest.MonkeyPatch.context() as patch:
                        patch.setenv("TACIT_STATE", str(common / f"{name}.state"))
                        _WORLDS[name](part)
                    part.rename(made)
            shutil.copytree(made, here / inner, dirs_exist_ok=True)
            if (common / f"{name}.state").exists():  # every page has a machine of its own
                shutil.copytree(common / f"{name}.state", here / ".state", dirs_exist_ok=True)
        port = free_port()
        for settings in here.rglob("party.toml"):
            settings.write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", settings.read_text()))
        return here

    return copied


@pytest.fixture(scope="session", name="shell")
def _shell():
    """Runs a script in bash, for real; what it printed. What it leaves running is ended with it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error", "COLUMNS": "120",
        "NO_COLOR": "1", "TERM": "dumb", "PYTHONPATH": str(Path(__file__).parents[2]),
    }  # fmt: skip

    def run(script, folder, timeout=240):
        with (folder / ".said").open("w+") as said:
            mine = {**environment, "HOME": str(folder), "TACIT_STATE": str(folder / ".state")}
            started = subprocess.Popen(
                ["bash", "-ec", script], cwd=folder, env=mine, stdin=subprocess.DEVNULL, stdout=said,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code = started.wait(timeout)
            except subprocess.TimeoutExpired:
                code = f"still running after {timeout} s"
            finally:
                _end(started.pid)
            started.wait()
            said.seek(0)
            return code, said.read()

    return run


def _end(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
