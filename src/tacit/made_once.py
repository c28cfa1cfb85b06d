"""Results that are made once: each is a folder that is whole on the disk or not there at all.

A kill leaves the parts that are done; the one that was being made is made again, from the same seeds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.disk import make_folder, opened, read_json, replaced, storing, sync_folder, write_json
from tacit.errors import UsageError


def made_once(
    folder: Path, name: str, make: Callable[[Path], None], trace: Callable[[str], None] = lambda _: None
) -> Path:
    """A folder of results, for its owner alone: made by `make` beside it, given its name when all is on the disk."""
    path, fresh = folder / name, folder / f"{name}.part"
    if not path.exists():
        with storing(path):
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(mode=0o700, parents=True)
        make(fresh)
        trace(f"{name} made")
        with storing(path):
            for file in fresh.rglob("*"):
                with opened(file, os.O_RDONLY, "synced") as fd:  # a folder in it as well
                    os.fchmod(fd, 0o700 if file.is_dir() else 0o600)  # libraries write for everybody
                    os.fsync(fd)
            sync_folder(fresh)
            fresh.rename(path)
            sync_folder(folder)
        trace(f"{name} written")
    return path


def discard(path: Path) -> None:
    """Take a part back, to be made again: it is whole until it is gone."""
    with storing(path):
        path.rename(path.with_name(f"{path.name}.part"))  # which whoever makes it anew removes
        sync_folder(path.parent)


def store_array(path: Path, values: NDArray[Any]) -> None:
    """Write an array anew, for its owner alone, and return when it is on the disk: it is whole or it is the old one."""
    make_folder(path.parent)
    replaced(path, lambda file: np.save(file, values))


def guard(path: Path, facts: Mapping[str, str]) -> None:
    """Write down what a run depends on, or refuse to go on where any of it has changed."""
    if not path.exists():
        write_json(path, dict(facts))
        return
    known = read_json(path, "bring it back as it was, or start a new run")
    words = {"mechanism": "limit or odds", "data": "table", "learn": "[learn] in party.toml"}
    changed = [words.get(name, name) for name in {**known, **facts} if known.get(name) != facts.get(name)]
    if changed:
        raise UsageError(
            f"this run began with another {', '.join(changed)}: put that back as it was, or agree on a new `run` "
            "in contract.toml"
        )
