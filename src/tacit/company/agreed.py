"""The owner's yes to a contract, on record in the party's folder; without it neither `align` nor `train` begins.

It covers what is disclosed: the contract but for its `run` (the same again, with next month's rows, is the same), which
columns are used, labels' limits and protections; not a feature party's `limit`: to raise it is a yes by itself.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

from tacit.company.check import check_folder
from tacit.company.folder import Folder
from tacit.disk import known_json, write_json
from tacit.errors import UsageError

_FILE = "agreed.json"


def agree(folder: Folder) -> None:
    """Put the owner's yes on record."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(folder.path / _FILE, {"time": now, "run": folder.terms.run, "what": _digest(folder)})


def agreed(folder: Folder) -> str | None:
    """When the owner agreed to the contract and to what this party does under it; None where nobody has."""
    found = known_json(folder.path / _FILE)
    same = isinstance(found, dict) and found.get("what") == _digest(folder)
    return str(found["time"]) if same and isinstance(found, dict) else None


def check_agreed(path: str | Path) -> None:
    """Refuse a folder whose owner has not agreed to its contract as it is now; what else is wrong is told first."""
    folder = Folder(path)
    if agreed(folder) is not None:
        return
    check_folder(folder)
    before = (folder.path / _FILE).exists()
    why = "the contract or party.toml has changed since somebody agreed" if before else "nobody has agreed yet"
    raise UsageError(
        f"{folder.path / 'contract.toml'}: {why} to what {folder.config.name} sends: tacit contract --folder {path} "
        "shows it and asks (--yes says so)"
    )


def _digest(folder: Folder) -> str:
    config = folder.config.model_dump(mode="json", include={"data", "protect", "odds", "budget", "odds_budget"})
    if folder.config.role == "label":
        config["limit"] = folder.config.limit
    if folder.config.label.complete is not None:
        config["complete"] = folder.config.label.complete
    terms = {name: value for name, value in folder.terms.content().items() if name != "run"}
    content = [terms, config]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
