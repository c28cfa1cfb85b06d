"""Memory hardly grows with the rows of a file that are matched by key: a token of each id is there, no embedding."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl

from tests.serve.files import copied

_PREDICT = """
import sys
from pathlib import Path
from tacit.serve.predict import predict
predict(sys.argv[1], *map(Path, sys.argv[2:]), match="keyed")
print(peak())
"""
_ID = 100  # bytes of a row at most: a token and its row number, and of so few rows blocks and buffers still grow


def _peaks(alone, world, rows):
    draw, ids = np.random.default_rng(rows), [f"g{row}" for row in range(rows)]
    wind, rain, plane = draw.normal(size=(3, rows))
    features = pl.DataFrame({"id": ids, "wind": wind, "rain": rain, "port": [f"p{row % 4}" for row in range(rows)]})
    features.write_parquet(world / "table.parquet")
    pl.DataFrame({"id": ids, "plane": plane}).write_parquet(world / "new.parquet")
    arguments = {
        "airline": (world / "airline", world / "new.parquet", world / f"{rows}.parquet"),
        "airport": (world / "airport", world / "table.parquet"),
    }
    with ThreadPoolExecutor(2) as both:
        started = {name: both.submit(alone, _PREDICT, *map(str, paths)) for name, paths in arguments.items()}
        return {name: int(one.result()) for name, one in started.items()}


def test_memory_hardly_grows_with_rows(exchanged, alone, tmp_path):
    world = copied(exchanged.path, tmp_path)
    few, many = 150_000, 450_000
    before, after = _peaks(alone, world, few), _peaks(alone, world, many)
    grown = {name: (after[name] - before[name]) / (many - few) for name in before}
    assert max(grown.values()) < _ID, grown
    assert pl.scan_parquet(world / f"{many}.parquet").select(pl.len()).collect().item() == many
