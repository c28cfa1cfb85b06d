"""What the doctor looks at on the machine itself: versions, extras, GPU, clock, disk, and the way to the peer."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal

import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tacit._version import __version__
from tacit.errors import LinkError, TacitError
from tacit.wire.certificates import Identity
from tacit.wire.network import bound, look

EXTRAS = {
    "cluster": ("ray", "sweeps and alignments on many machines"),
    "fastpsi": ("ipp-crypto", "alignment at five times the speed"),
    "figures": ("matplotlib", "figures of the papers"),
    "images": ("pillow", "data sets of pictures"),
    "sql": ("sqlalchemy", "rows from a database"),
    "tracking": ("mlflow-skinny", "reports in MLflow"),
}
"""Each extra with the package that tells whether it is installed, and what it is for."""

_OLDEST = datetime(2026, 1, 1, tzinfo=UTC)  # no clock that is right shows a time before this
_SLOW = 0.05  # seconds of an fsync, from which on a training waits for its disk
_TRIES = 5
_SECONDS = 5.0  # in which the peer answers
_TRIPS, _LONG = 3, 0.02  # round trips until it has; seconds of one from which on a step waits long


@dataclass(frozen=True)
class Finding:
    """What one check came to."""

    name: str  # what was checked; `examine` writes it in
    # "ok"; "warning" where it works but should be looked at; "problem" where something will not work
    verdict: Literal["ok", "warning", "problem"]
    seen: str  # what was found
    do: str = ""  # what to do about it; empty where there is nothing to do


ok, warning, problem = partial(Finding, "", "ok"), partial(Finding, "", "warning"), partial(Finding, "", "problem")


def of_error(error: TacitError | OSError) -> Finding:
    """A problem, from an error whose message says what happened and after its last colon what to do."""
    if not isinstance(error, TacitError):
        return problem(f"{error.filename}: {error.strerror or error}", "look at who owns it")
    seen, colon, do = str(error).rpartition(": ")
    if colon and "\n" not in str(error):
        return problem(seen, do)
    first, *rest = str(error).splitlines()
    return problem(" ".join([first, "; ".join(line.strip() for line in rest)]).rstrip(), "correct it as is said there")


# --- this machine ----------------------------------------------------------------------------------------------------


def versions() -> Finding:
    """Python and the packages that tacit needs, against the bounds that it was installed with."""
    python = platform.python_version()
    here = f"tacit {__version__}, Python {python}, torch {torch.__version__}"
    wrong = [] if fits(python, SpecifierSet(">=3.11")) else [f"Python {python} is below 3.11"]
    for needed in required():
        try:
            installed = metadata.version(needed.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{needed.name} is not installed")
            continue
        if not fits(installed, needed.specifier):
            wrong.append(f"{needed.name} {installed} is not {needed.specifier}")
    if wrong:
        do = "install Tacit anew: make clean, then make demo, in its checkout"
        return problem(f"{here}; {', '.join(wrong)}", do)
    return ok(f"{here}; every package is within its bounds")


def fits(version: str, bounds: SpecifierSet) -> bool:
    """Whether a version lies within bounds; what was built for testing counts as well."""
    return bounds.contains(version, prereleases=True)


def required() -> list[Requirement]:
    """The packages that are always needed, each with its bounds."""
    try:
        declared = [Requirement(line) for line in metadata.requires("tacit") or []]
    except metadata.PackageNotFoundError:
        return []
    return [needed for needed in declared if needed.marker is None or needed.marker.evaluate({"extra": ""})]


def extras() -> Finding:
    """Which optional parts are here."""
    here = {name for name, (package, _) in EXTRAS.items() if _installed(package)}
    there = ", ".join(sorted(here)) or "none"
    missing = [f"{name} ({what})" for name, (_, what) in EXTRAS.items() if name not in here]
    if not missing:
        return ok(f"installed: {there}")
    first = next(name for name in EXTRAS if name not in here)
    seen = f"installed: {there}; not installed: {', '.join(missing)}"
    return ok(seen, f"where you want it: pip install -e '.[{first}]' in the checkout")


def gpu() -> Finding:
    """Whether torch sees a CUDA device; none is fine, one that torch can't use is not."""
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info())
        return ok(f"{torch.cuda.device_count()} of CUDA: {name}, {free:.0f} of {total:.0f} GiB free")
    if Path("/dev/nvidia0").exists():
        built = "for CUDA " + torch.version.cuda if torch.version.cuda else "for the CPU alone"
        seen = f"there is an NVIDIA device, but torch can't use it; torch is built {built}"
        return warning(seen, "install a torch build for CUDA, or look at the driver with nvidia-smi")
    return ok("none: training runs on the CPU")


def clock(now: datetime | None = None) -> Finding:
    """What can be known about the clock without asking anybody."""
    now = now or datetime.now(UTC)
    shown = f"it shows {now:%Y-%m-%d %H:%M:%S} UTC"
    if now < _OLDEST:
        return problem(f"{shown}, which is long ago", "set it: certificates are valid by date")
    return ok(f"{shown}; compare it with a watch, a peer's clock can't be seen from here")


def disk(folder: Path, needed: int | None = None) -> Finding:
    """Free space, and how long a small write takes until it is on the disk."""
    free = shutil.disk_usage(folder).free
    try:
        taken = _fsync(folder)
    except OSError as error:
        return problem(f"{folder} can't be written ({error.strerror})", "look at who may write there")
    seen = f"{_size(free)} free in {folder}, a write is safe after {1000 * taken:.1f} ms"
    if needed is not None:
        seen += f"; a run takes up to about {_size(needed)}"
        if free < needed:
            return problem(seen, "make room, or move the folder to a larger disk")
        if free < 2 * needed:
            return warning(seen, "make room before a second run begins")
    if taken > _SLOW:
        return warning(seen, "every step waits for the disk: put the folder on a local SSD")
    return ok(seen)


def _fsync(folder: Path) -> float:
    """The median seconds of some writes of 64 bytes with an fsync."""
    times = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
        for _ in range(_TRIES):
            begun = time.perf_counter()
            file.write(b"\0" * 64)
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - begun)
    return sorted(times)[_TRIES // 2]


def _installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return importlib.util.find_spec(package.replace("-", "_")) is not None
    return True


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


# --- the network -----------------------------------------------------------------------------------------------------


def reach(address: str, identity: Identity, peer: str, pinned: bytes, *, seconds: float = _SECONDS) -> Finding:
    """Try a TLS handshake with the label party, as a training does; nothing is sent beyond that."""
    began = time.monotonic()
    look(address, identity, peer, pinned, seconds)  # which says what is wrong
    trip = (time.monotonic() - began) / _TRIPS
    seen = f"{peer} at {address} shows the pinned certificate and takes ours"
    if trip < _LONG:
        return ok(seen)
    do = 'step by step each batch waits for one: mode = "one_shot" in contract.toml trains in one exchange'
    return ok(f"{seen}; a round trip takes about {1000 * trip:.0f} ms", do)


def port(address: str, name: str, runs: list[int]) -> Finding:
    """Whether the label party can listen at its address."""
    try:
        bound(address, name).close()
    except LinkError:
        if runs:
            return ok(f"{address} is in use, by this party's own run (process {runs[0]})")
        raise
    seen = f"{address} is free; whether the peers can reach it, only they can tell"
    return ok(seen, "let each feature party run `tacit doctor` while `tacit align` or train waits here")
