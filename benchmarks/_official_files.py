"""Generated rows as files in the official formats of Criteo and Avazu, a chunk at a time; tests read them, too."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import IO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align.batches import scramble
from tacit.disk import storing
from tacit.lab.data import avazu, criteo
from tacit.lab.data.generated import AVAZU, CRITEO, Drawing, Drawn

_FIRST_DAY = date(2014, 10, 21)


@dataclass(frozen=True)
class _Writer:
    file: str  # its official name
    drawing: Callable[[int], Drawing]  # of a seed
    table: Callable[[Drawn, int], pl.DataFrame]  # of a chunk and the number of its first row
    separator: str
    header: bool


def _spelled(codes: NDArray[np.int32], column: int) -> pl.Series:
    """Codes as eight hexadecimal digits, spelled otherwise in each column; different codes stay different."""
    different, places = np.unique(codes, return_inverse=True)
    mixed = (different.astype(np.uint64) * 2654435761 + np.uint64(column * 40503 + 12345)) % np.uint64(2**32)
    return pl.Series([f"{value:08x}" for value in mixed.tolist()], dtype=pl.String).gather(places)


def _criteo(drawn: Drawn, first: int) -> pl.DataFrame:
    """Numbers that were 0 are missing, the others whole; the third code of some categories stands for a missing one."""
    found = {"label": pl.Series(drawn.labels.numpy().astype(np.int8))}
    for place, name in enumerate(criteo.NUMBERS):
        numbers = drawn.numbers[:, place].double().numpy()
        whole = pl.Series(np.floor(numbers * 10.0 ** (1 + place % 5)).astype(np.int64) - place % 3)
        found[name] = whole.set(pl.Series(numbers == 0), None)
    for place, name in enumerate(criteo.CATEGORIES):
        codes = drawn.codes[:, place].numpy()
        missing = pl.Series((codes == 2) & (place % 3 == 2))
        found[name] = _spelled(codes, place).set(missing, None)
    return pl.DataFrame(found)


def _avazu(drawn: Drawn, first: int) -> pl.DataFrame:
    """In the order of time, chunk by chunk."""
    days = drawn.days.numpy()
    stamps = [int((_FIRST_DAY + timedelta(days=day)).strftime("%y%m%d")) for day in range(int(days.max()) + 1)]
    codes = dict(zip(avazu.CATEGORIES, drawn.codes.numpy().T, strict=True))
    ids = (scramble(np.arange(first, first + len(days)), 1) * 2**63).astype(np.uint64)
    found = {
        "id": pl.Series(ids),
        "click": pl.Series(drawn.labels.numpy().astype(np.int8)),
        "hour": pl.Series(np.array(stamps)[days] * 100 + codes["hour"]),
    }
    for place, name in enumerate(avazu.CATEGORIES[1:], 1):
        texts = name.startswith(("site", "app")) or name in ("device_id", "device_ip", "device_model")
        plain = codes[name].astype(np.int64) + (1000 if name.startswith("C") else 0)
        found[name] = _spelled(codes[name], place) if texts else pl.Series(plain - (1001 if name == "C20" else 0))
    return pl.DataFrame(found).sort("hour", maintain_order=True)


_WRITERS = {
    "criteo": _Writer("train.txt", lambda seed: Drawing(CRITEO, 13, 0.256, seed), _criteo, "\t", header=False),
    "avazu": _Writer("train.csv", lambda seed: Drawing(AVAZU, 0, 0.17, seed, days=10), _avazu, ",", header=True),
}


def write(name: str, path: str | Path, rows: int, seed: int) -> Path:
    """A generated file in the official format: Criteo's `train.txt` or Avazu's `train.csv`.

    Args:
        name: "criteo" or "avazu".
        path: of the file, packed if it ends with `.gz`, or of the folder that gets one with the official name.
        rows: how many.
        seed: of everything.
    """
    writer = _WRITERS[name]
    file = Path(path) / writer.file if Path(path).is_dir() else Path(path)
    packed = file.suffix == ".gz"
    with storing(file), gzip.open(file, "wb", compresslevel=1) if packed else file.open("wb") as opened:
        first = 0
        for drawn in writer.drawing(seed).chunks(rows):
            _append(opened, writer, writer.table(drawn, first), header=writer.header and not first)
            first += len(drawn.labels)
    return file


def _append(file: IO[bytes] | gzip.GzipFile, writer: _Writer, table: pl.DataFrame, header: bool) -> None:
    file.write(table.write_csv(separator=writer.separator, include_header=header, quote_style="never").encode())
