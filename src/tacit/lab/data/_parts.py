"""A source's rows as Parquet files, one for each chunk: written once, and gone on with where writing was broken off."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tacit.disk import replaced, storing
from tacit.errors import DataError
from tacit.lab.data._sources import ROW, Bad, Chunk, Position, Source

_FORMAT = 1  # of the files; another one is made anew
_ABOUT = "tacit"  # in the metadata of a part
_SOURCE, _END = "source.json", "end.json"


@dataclass(frozen=True)
class Parts:
    """The readable rows of a source, or of its beginning."""

    files: tuple[Path, ...]  # in the order of the rows
    bad: tuple[Bad, ...]  # the rows that could not be read
    rows: int  # how many of the source's rows they are of, bad ones included

    def tables(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """These columns of the rows, and their numbers in `ROW`, a part at a time."""
        for file in self.files:
            try:
                table = pl.read_parquet(file, columns=[ROW, *columns], glob=False)
            except (OSError, pl.exceptions.PolarsError) as error:
                cause = str(error).partition("\n")[0]
                raise DataError(f"{file} can't be read ({cause}): delete {file.parent}, it is made anew") from None
            if len(table) and int(table[ROW][-1]) >= self.rows:
                table = table.filter(pl.col(ROW) < self.rows)
            if len(table):
                yield table


def parts(
    source: Source,
    folder: Path,
    *,
    rows: int | None = None,
    skip: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Parts:
    """The parts of a source in a folder; what is not there yet is read and written.

    Bad rows are left out with `skip`; else the first one is raised.
    """
    facts = {"format": _FORMAT, **source.facts()}
    if _written(folder / _SOURCE) != facts:
        with storing(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True)
        _write(folder / _SOURCE, facts)
    files: list[Path] = []
    bad: list[Bad] = []
    at = Position()

    def enough() -> bool:
        if progress is not None:
            progress(at.done)
        if bad and not skip and (rows is None or bad[0].row < rows):
            raise bad[0].error()
        return rows is not None and at.row >= rows

    for file, about in _there(folder):
        files.append(file)
        bad += [Bad(**each) for each in about["bad"]]
        at = Position(**about["after"])
        if enough():
            break
    if (rows is None or at.row < rows) and _written(folder / _END) != {"row": at.row}:
        for chunk in source.chunks(at):
            at = chunk.after
            bad += chunk.bad
            files.append(_store(folder, len(files), chunk))
            if enough():
                break
        else:
            _write(folder / _END, {"row": at.row})
    if {"format": _FORMAT, **source.facts()} != facts:
        raise DataError(f"{source.path} was changed while it was read: wait until it is whole, and start again")
    limit = at.row if rows is None else min(rows, at.row)
    return Parts(tuple(files), tuple(each for each in bad if each.row < limit), limit)


def _store(folder: Path, number: int, chunk: Chunk) -> Path:
    """Write a part, whole or not at all."""
    path, about = folder / f"part-{number:05d}.parquet", json.dumps(chunk.about())
    replaced(
        path,
        lambda file: chunk.table.write_parquet(
            file, compression="zstd", compression_level=1, statistics=False, metadata={_ABOUT: about}
        ),
    )
    return path


def _there(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The parts that are whole, from the first one on, until one is missing or damaged."""
    for number in range(10**6):
        file = folder / f"part-{number:05d}.parquet"
        try:
            yield file, json.loads(pl.read_parquet_metadata(file)[_ABOUT])
        except (OSError, KeyError, ValueError, pl.exceptions.PolarsError):
            return


def _write(path: Path, content: Mapping[str, Any]) -> None:
    replaced(path, lambda file: file.write(json.dumps(content).encode()))


def _written(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
