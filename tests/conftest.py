"""One thread for all tests: small tensors run faster on one than on threads that wait for each other."""

import os
import subprocess
import sys

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory):
    """What left in runs is counted in a folder of the tests, not in that of whoever runs them."""
    os.environ["TACIT_STATE"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(name="seeded")
def _seeded():
    """A torch generator for a seed."""
    return lambda seed: torch.Generator().manual_seed(seed)


_PEAK = """
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
"""


@pytest.fixture(name="alone")
def _alone():
    """What a program prints that runs in a process of its own, where `peak()` is the most memory it has had, in bytes.

    Not ru_maxrss: that of a new process starts with what the process had that started it.
    """

    def run(code, *arguments):
        command = [sys.executable, "-c", _PEAK + code, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
