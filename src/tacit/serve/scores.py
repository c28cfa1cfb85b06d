"""Scores as a file: a row for each row of the input, in its order; made in parts, so that a kill costs one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align.arrays import let_go
from tacit.align.sources import blocks
from tacit.disk import make_folder, replaced
from tacit.errors import UsageError
from tacit.progress import Progress
from tacit.serve.halves import Scorer

_UNKNOWN, _NO_ID = "not every party has this id", "this row has no id"
_SINKS: dict[str, Callable[[pl.LazyFrame, IO[bytes]], object]] = {
    ".parquet": lambda frame, file: frame.sink_parquet(file),
    ".csv": lambda frame, file: frame.sink_csv(file),
}


@dataclass(frozen=True)
class Written:
    """What a file of scores holds."""

    path: Path  # of the file
    rows: int  # in all
    joint: int  # scored with the embeddings of all feature parties
    fallback: int  # scored by the label party's own columns alone
    none: int  # without a score


def check_out(path: Path) -> None:
    """Refuse a file of scores that can't be written, before anybody is asked for anything."""
    if path.suffix.lower() not in _SINKS:
        ending = f"ends with {path.suffix!r}" if path.suffix else "has no ending"
        raise UsageError(f"--out {path} {ending}: name a .parquet or .csv file")
    if path.exists():
        raise UsageError(f"--out {path} is there already: choose another name, or move it away")
    if not path.parent.is_dir():
        raise UsageError(f"--out {path}: there is no folder {path.parent}: make it, or choose another")


@dataclass(frozen=True)
class Scoring:
    """All that it takes to score a file, when everything that was asked for is here."""

    source: Path  # the file
    ids: tuple[str, ...]  # its columns that name a row
    scorer: Scorer  # the label party's half
    fallback: bool  # whether rows that not all parties have are scored without their embeddings
    # of each feature party: for each row of the file whether it has it, then the embedding
    received: Mapping[str, NDArray[np.uint8]]
    folder: Path  # where parts are kept
    progress: Progress  # told how far it is

    def write(self, out: Path, total: int, trace: Callable[[str], None] = lambda _: None) -> Written:
        """Score all of so many rows."""
        parts, done, found = self.folder / "scores", 0, []
        make_folder(parts)
        columns = list(dict.fromkeys((*self.ids, *self.scorer.columns)))
        for number, block in enumerate(blocks(self.source, columns)):
            found.append(parts / f"{number:08}.parquet")
            if not found[-1].exists():
                scored = self._scored(block, done)
                replaced(found[-1], lambda file, scored=scored: scored.write_parquet(file))  # type: ignore[misc]
                trace("part scored")
                for received in self.received.values():
                    let_go(received)
            done += len(block)
            self.progress("scoring", done, total)
        _merge(found, out)
        counts = dict(pl.scan_parquet(found).group_by("basis").len().collect(engine="streaming").iter_rows())
        return Written(out, done, *(counts.get(basis, 0) for basis in ("joint", "fallback", "none")))

    def _scored(self, block: pl.DataFrame, start: int) -> pl.DataFrame:
        """The scores of the rows from this one on."""
        numbers = np.arange(start, start + len(block))
        received = {name: rows[start : start + len(block)] for name, rows in self.received.items()}
        joint = np.all([rows[:, 0] == 1 for rows in received.values()], axis=0)
        scores = np.full((len(block), len(self.scorer.outputs)), np.nan)
        known, others = np.flatnonzero(joint), np.flatnonzero(~joint)
        if len(known):
            embeddings = {name: np.asarray(rows[known, 1:]) for name, rows in received.items()}
            scores[known] = self.scorer.score(block[known], embeddings, numbers[known])
        if self.fallback and len(others):
            scores[others] = self.scorer.score(block[others], None, numbers[others])
        absent = pl.any_horizontal(pl.col(*self.ids).is_null() | (pl.col(*self.ids).cast(pl.Binary) == b""))
        reason = (
            pl.when(pl.lit(pl.Series(joint))).then(None).when(absent).then(pl.lit(_NO_ID)).otherwise(pl.lit(_UNKNOWN))
        )
        basis = np.where(joint, "joint", "fallback" if self.fallback else "none")
        named = [pl.Series(name, scores[:, k], nan_to_null=True) for k, name in enumerate(self.scorer.outputs)]
        return block.select(*self.ids, *named, pl.Series("basis", basis), reason.alias("reason"))


def _merge(parts: list[Path], out: Path) -> None:
    """All parts in one file, which is whole or not there, and never over another one."""

    def write(file: IO[bytes]) -> None:
        _SINKS[out.suffix.lower()](pl.scan_parquet(parts), file)
        check_out(out)

    replaced(out, write)
