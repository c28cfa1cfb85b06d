"""What a lab has found so far, one JSON file for each setting, written the moment it is known.

So a lab that was interrupted goes on where it was: what has a record is not trained again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.disk import replaced
from tacit.errors import StorageError, UsageError

__all__ = ["Reading", "Records"]

_FORMAT = 3  # of a record: raised when what is measured changes, so that old and new are not mixed


class Records:
    """The records of one lab in one folder.

    Args:
        folder: where they are.
        settings: what must be the same for all of them: data, rows, epochs, seed.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.settings = {"format": _FORMAT, **settings}

    def read(self, name: str) -> dict[str, Any] | None:
        """One record, or None where there is none yet; one of other settings is refused."""
        path = self._path(name)
        try:
            record = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StorageError(f"{path} can't be read ({error}): delete it, and it is made again") from error
        then = record.get("settings", {}) if isinstance(record, dict) else {}
        differing = [key for key, value in self.settings.items() if then.get(key) != value]
        if differing:
            key = differing[0]
            raise UsageError(
                f"{path} was made with {key} = {then.get(key)!r}, and now it is {self.settings[key]!r}: choose another "
                "--out, give the same settings again, or delete the folder"
            )
        return dict(record)

    def write(self, name: str, found: Mapping[str, Any]) -> dict[str, Any]:
        """Keep what was found, whole or not at all."""
        record = {"name": name, "settings": self.settings, **found}
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(record, indent=1) + "\n"
        replaced(path, lambda file: file.write(text.encode()))
        return record

    def _path(self, name: str) -> Path:
        return self.folder / "records" / f"{name}.json"


@dataclass(frozen=True)
class Reading:
    """A setting's record, read by the names that figures and sentences use.

    Attributes:
        record: as it was written down.
        batch_size: at which one distance correlation stands for the setting.
    """

    record: Mapping[str, Any]
    batch_size: int

    @property
    def label(self) -> str:
        """In figures and tables."""
        return str(self.record["label"])

    @property
    def utility(self) -> Mapping[str, Any]:
        """What the model is worth: accuracy or AUC on held-out rows, with its interval, and the losses."""
        return dict(self.record["utility"])

    @property
    def sizes(self) -> list[int]:
        """The batch sizes at which the distance correlation is known."""
        return [int(size) for size in self.record["dcor"]["by_batch_size"]]

    def dcor(self, size: int | None = None, kind: str = "by_batch_size") -> Mapping[str, float]:
        """The distance correlation between X and what is sent, at a batch size."""
        known = self.record["dcor"][kind]
        wanted = str(self.batch_size if size is None else size)
        return dict(known[wanted] if wanted in known else known[list(known)[-1]])

    @property
    def loss(self) -> float:
        """Of the attacker that learnt beside the training: the report's reconstruction loss."""
        return float(self.record["report"]["beside"])

    @property
    def relative_loss(self) -> float:
        """The same over the loss of answering the mean of X, which training may change where X is learnt."""
        return self.loss / float(self.record["report"]["mean"])

    @property
    def curve(self) -> Mapping[str, list[float]]:
        """Of held-out rows over training: "epoch", "dcor", "loss" and "utility", moment by moment."""
        return dict(self.record["curve"])

    @property
    def attacks(self) -> Iterator[tuple[str, Mapping[str, float], Mapping[str, float]]]:
        """Of each independent attacker its name, its error, and the error over that of answering the mean."""
        for one in self.record["inputs"]:
            yield one["attack"], one["error"], one["relative"]

    @property
    def worst(self) -> Mapping[str, float]:
        """The smallest relative error that an independent attacker reached."""
        return min((relative for _, _, relative in self.attacks), key=lambda found: found["value"])
