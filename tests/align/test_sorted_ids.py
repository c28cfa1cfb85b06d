"""Ids in files are the ones that memory would hold, in the order of their hashes' bytes."""

import numpy as np
import polars as pl
import pytest

from tacit.align import parts, sorted_ids, sources
from tacit.align.curve import byte_order
from tacit.align.ids import read_ids
from tacit.errors import DataError


@pytest.fixture(name="little_room", autouse=True)
def _little_room(monkeypatch):
    monkeypatch.setattr(sources, "_SMALLEST", 16)
    monkeypatch.setattr(sources, "_LARGEST", 64)
    monkeypatch.setattr(sorted_ids, "HELD", 100)
    monkeypatch.setattr(parts, "_WAITING", 1 << 12)


def expected(source, columns):
    ids = read_ids(source, columns)
    order = byte_order(ids.hashes)
    return ids.hashes[order], ids.rows[order], ids.report


def same(source, columns, folder):
    hashes, rows, report = expected(source, columns)
    found = sorted_ids.sorted_ids(source, columns, folder)
    assert np.array_equal(found.hashes, hashes)
    assert np.array_equal(found.rows, rows)
    assert found.report == report
    return found


@pytest.mark.parametrize("seed", range(6))
def test_files_hold_what_memory_would(seed, tmp_path):
    """Some ids are missing, some are in two rows, and one is in a third of all."""
    draw = np.random.default_rng(seed)
    numbers = draw.integers(0, 1500, 1000).astype(str).astype(object)
    numbers[draw.random(1000) < 0.33] = "hot"
    numbers[draw.random(1000) < 0.05] = None
    found = same(pl.DataFrame({"id": numbers.tolist()}, schema={"id": pl.String}), "id", tmp_path / "ids")
    assert isinstance(found.hashes, np.memmap)
    assert found.report.repeated_rows > 300
    assert {path.name for path in (tmp_path / "ids").iterdir()} == {"hashes", "rows"}, "parts are gone"


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_from_every_kind_of_file(kind, tmp_path):
    path = tmp_path / f"table.{kind}"
    table = pl.DataFrame({"day": [f"{n % 31:02}" for n in range(700)], "id": range(700), "x": [0.5] * 700})
    table.write_parquet(path) if kind == "parquet" else table.write_csv(path, separator=",\t"[kind == "tsv"])
    assert len(same(path, ["id", "day"], tmp_path / "ids")) == 700


def test_few_ids_stay_in_memory(tmp_path):
    found = same(pl.DataFrame({"id": range(90)}), "id", tmp_path / "ids")
    assert not isinstance(found.hashes, np.memmap)
    assert not (tmp_path / "ids").exists()


def test_one_id_in_all_rows(tmp_path):
    with pytest.raises(DataError, match="no row has an id that can be used"):
        sorted_ids.sorted_ids(pl.DataFrame({"id": [1] * 1000}), "id", tmp_path / "ids")
    assert sum(path.stat().st_size for path in (tmp_path / "ids").iterdir()) == 0
