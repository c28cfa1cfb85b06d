"""Tables of any size as training and test rows: read once in chunks, learnt from, encoded, and mapped into memory.

Three passes, each a part of bounded size at a time:

1. the source becomes Parquet files, one for each chunk; broken off, it goes on with the next chunk;
2. vocabularies and scales are learnt from the training rows alone;
3. every row is encoded into row-major files, which training maps and never holds whole.

What an earlier call made is used again as long as the source and the options are the same. The Parquet files serve
every choice of options; they may be deleted, and are made anew where they are needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import polars as pl

from tacit.align._mapped import locked, sync_folder, write, writing
from tacit.errors import DataError, UsageError
from tacit.lab.data._cells import DAY
from tacit.lab.data._choices import TEST, TRAIN, Options, Schema
from tacit.lab.data._encoding import Days, Encoder, opened, write_rows
from tacit.lab.data._fitting import Counting, Measuring
from tacit.lab.data._parts import Parts, parts
from tacit.lab.data._sources import ROW, Bad, Source
from tacit.lab.data.rows import Data, Rows, Table

__all__ = ["Options", "Progress", "Schema", "cache_folder", "load"]

Progress = Callable[[int, int], None]
"""Called with the work done and to do, in bytes of text or rows of Parquet, each of which counts once in each pass."""

_FORMAT = 1  # of the encoded files; another one is made anew
_MANIFEST = "manifest.json"


def cache_folder(path: Path, cache: str | Path | None) -> Path:
    """Where what is made of a file is kept: beside it, since there is room for files of its size, or where asked."""
    if cache is None:
        return path.with_name(f"{path.name}.tacit")
    return Path(cache) / f"{path.name}-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}.tacit"


def load(
    source: Source,
    schema: Schema,
    options: Options,
    *,
    cache: str | Path | None = None,
    bad: Literal["raise", "skip"] = "raise",
    progress: Progress | None = None,
    made: Sequence[str] = (),
    both: bool = False,
) -> Data:
    """Training and test rows of a source, from the cache or made there.

    Args:
        source: what to read.
        schema: which columns are used.
        options: which rows are used, and how.
        cache: a folder for everything that is kept; None for one beside the source, named after it.
        bad: what to do about a row that can't be read: "raise" an error that says where it is, or "skip" and count it.
        progress: see `Progress`.
        made: what else `Data.made` should say, in front.
        both: whether the label party has all columns of the feature party as well; nothing is copied for it.
    """
    if bad not in ("raise", "skip"):
        raise UsageError(f'bad={bad!r}: give "raise" or "skip"')
    making = _Making(source, schema, options, cache_folder(source.path, cache), bad == "skip", progress)
    about = making.reused() or making.make()
    first = about["first_bad"]
    if first is not None and bad == "raise":
        raise Bad(**first).error()
    return making.opened(about, made, both)


@dataclass(frozen=True)
class _Making:
    """One call of `load`."""

    source: Source
    schema: Schema
    options: Options
    folder: Path
    skip: bool
    progress: Progress | None

    def facts(self) -> dict[str, Any]:
        """Everything that the encoded files depend on."""
        found = {
            "format": _FORMAT,
            "source": self.source.facts(),
            "schema": {key: value for key, value in asdict(self.schema).items() if key != "name"},
            "options": asdict(self.options),
        }
        return cast(dict[str, Any], json.loads(json.dumps(found)))

    def encoded(self, facts: Mapping[str, Any]) -> Path:
        """The folder of the encoded files."""
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        return self.folder / f"encoded-{digest[:16]}"

    def reused(self) -> dict[str, Any] | None:
        """What an earlier call wrote down about the same; None where there is nothing, or nothing that is whole."""
        facts = self.facts()
        try:
            about = json.loads((self.encoded(facts) / _MANIFEST).read_bytes())
            if not isinstance(about, dict) or about.get("facts") != facts:
                return None
            self.sides(about)
        except (OSError, ValueError):
            return None
        return about

    def make(self) -> dict[str, Any]:
        """All three passes. Another process that makes the same is not waited for: it is an error that says so."""
        with locked(self.folder):
            facts = self.facts()
            self._clear(facts["source"])
            read = parts(
                self.source, self.folder / "parts", rows=self.options.rows, skip=self.skip,
                progress=lambda done: self._tell(0, done),
            )  # fmt: skip
            encoder, days = self._learn(read)
            target = self.encoded(facts)
            new = target.with_name("encoded.new")
            with writing(new):
                shutil.rmtree(new, ignore_errors=True)
                new.mkdir(mode=0o700)
            self._encode(read, encoder, days, new)
            cardinalities = {name: known.size for name, known in encoder.vocabularies.items()}
            about = {
                "facts": facts,
                "rows": [sum(days[side].values()) for side in (TRAIN, TEST)],
                "cardinalities": cardinalities,
                "skipped": len(read.bad),
                "first_bad": asdict(read.bad[0]) if read.bad else None,
            }
            with writing(target):
                write(new / _MANIFEST, json.dumps(about).encode())
                shutil.rmtree(target, ignore_errors=True)
                os.replace(new, target)
                sync_folder(self.folder)
        return about

    def _clear(self, source: Mapping[str, Any]) -> None:
        """Delete what was encoded from a source that has changed since: it takes room, and nobody asks for it again."""
        for old in self.folder.glob("encoded-*"):
            try:
                current = json.loads((old / _MANIFEST).read_bytes())["facts"]["source"] == source
            except (OSError, ValueError, KeyError, TypeError):
                current = False
            if not current:
                shutil.rmtree(old, ignore_errors=True)

    def _tell(self, before: int, done: int) -> None:
        if self.progress is not None:
            self.progress(before * self.source.size + done, 3 * self.source.size)

    def _learn(self, read: Parts) -> tuple[Encoder, dict[int, Days]]:
        """The second pass: what training rows teach, and how many rows each side has on each day."""
        files, label = self.schema.files, self.schema.label
        counting = {name: Counting() for key in files if key.endswith("codes") for name in files[key]}
        measuring = {
            name: Measuring(self.options.scaling) for key in files if key.endswith("numbers") for name in files[key]
        }
        days: dict[int, Days] = {TRAIN: {}, TEST: {}}
        for number, table in enumerate(read.tables(self.schema.columns), 1):
            side = self.options.side(table[ROW].to_numpy())
            for which, counts in days.items():
                chosen = table.filter(pl.Series(side == which))
                on = chosen[DAY].to_numpy() if self.schema.days else np.zeros(len(chosen), np.int32)
                for day, count in zip(*(each.tolist() for each in np.unique(on, return_counts=True)), strict=True):
                    counts[day] = counts.get(day, 0) + count
                if which == TRAIN:
                    for name, counted in counting.items():
                        counted.add(chosen[name])
                    for name, measured in measuring.items():
                        measured.add(chosen[name])
            self._tell(1, self.source.size * number // len(read.files))
        if not days[TRAIN] or not days[TEST]:
            raise DataError(
                f"{self.source.path} leaves no row for training or none for testing ({read.rows} rows were read, "
                f"{len(read.bad)} of them were skipped): use more rows, a larger sample or another test_share"
            )
        # One after the other, and the counts of each go before the next: both of all columns may be gigabytes.
        vocabularies = {name: counting.pop(name).vocabulary(self.options.min_count) for name in list(counting)}
        scales = {name: measured.scale() for name, measured in measuring.items()}
        first = min(*days[TRAIN], *days[TEST]) if self.schema.days else None
        return Encoder(vocabularies, scales, label, files, first), days

    def _encode(self, read: Parts, encoder: Encoder, days: Mapping[int, Days], folder: Path) -> None:
        """The third pass: every row to its place."""
        with (
            write_rows(folder, "train", encoder, days[TRAIN]) as train,
            write_rows(folder, "test", encoder, days[TEST]) as test,
        ):
            for number, table in enumerate(read.tables(self.schema.columns), 1):
                side = self.options.side(table[ROW].to_numpy())
                train.add(table.filter(pl.Series(side == TRAIN)))
                test.add(table.filter(pl.Series(side == TEST)))
                self._tell(2, self.source.size * number // len(read.files))

    def sides(self, about: Mapping[str, Any]) -> list[Rows]:
        """Training and test rows, mapped."""
        widths = {name: len(columns) for name, columns in self.schema.files.items()}
        folder = self.encoded(about["facts"])
        return [
            opened(folder, side, rows, widths, self.schema.days)
            for side, rows in zip(("train", "test"), about["rows"], strict=True)
        ]

    def opened(self, about: Mapping[str, Any], made: Sequence[str], both: bool) -> Data:
        """The data set."""
        train, test = self.sides(about)
        sizes = {
            name: tuple(about["cardinalities"][column] for column in columns)
            for name, columns in self.schema.files.items()
            if name.endswith("codes")
        }
        inputs = Table(
            sizes["codes"], len(self.schema.numeric), sizes.get("own_codes", ()), len(self.schema.own_numeric)
        )
        if both:
            train, test = replace(train, own=train.features), replace(test, own=test.features)
            inputs = replace(inputs, own_cardinalities=inputs.cardinalities, own_numeric=inputs.numeric)
        told = [*made, *self.options.told()]
        if about["skipped"]:
            told.append(f"{about['skipped']:,} rows could not be read and were left out.")
        return Data(self.schema.name, train, test, inputs, tuple(told), about["skipped"])
