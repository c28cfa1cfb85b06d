"""Inputs as mapped files: the same as the whole table at once, used again only while they are whole and fit."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import torch

from tacit.align import arrays, cache, sources
from tacit.align.cache import prepare
from tacit.align.sources import load
from tacit.align.tables import Columns, Encoder, Inputs, inputs_digest, labels
from tacit.errors import DataError, LabelsError, StorageError, UsageError

COLUMNS = Columns(categorical=("carrier", "gate"), numeric=("seats", "price"), flagged=("seats",))
ROWS = np.random.default_rng(3).permutation(500)[:400]
TRAIN = 300


def generated(seed: int = 0) -> pl.DataFrame:
    """500 rows with every kind of gap; some values are in no training row."""
    noise = np.random.default_rng(seed)
    seats = noise.integers(1, 400, 500).tolist()
    carriers = [f"carrier number {n}" if n < 60 else None for n in noise.integers(0, 64, 500)]
    return pl.DataFrame(
        {
            "id": np.arange(500),
            "carrier": carriers,
            "gate": noise.integers(0, 40, 500),
            "seats": [None if n % 9 == 0 else n for n in seats],
            "price": noise.normal(1e6, 3.0, 500),
            "late": noise.integers(0, 2, 500),
        }
    )


TABLE = generated()


STORE = []
"""The folder of tables that a test has only in memory."""


@pytest.fixture(autouse=True)
def _store(tmp_path_factory):
    STORE[:] = [tmp_path_factory.mktemp("tables")]


@pytest.fixture(params=["parquet", "csv", "tsv"])
def source(request, tmp_path):
    return stored(TABLE, tmp_path, request.param)


@pytest.fixture
def small_blocks(monkeypatch):
    """As if the tables were large: seven rows a block."""
    monkeypatch.setattr(sources, "_SMALLEST", 7)
    monkeypatch.setattr(sources, "_LARGEST", 7)
    monkeypatch.setattr(arrays, "_PIECE", 11)


def stored(table, folder, kind):
    path = folder / f"table.{kind}"
    if kind == "parquet":
        table.write_parquet(path, row_group_size=90)
    else:
        table.write_csv(path, separator="," if kind == "csv" else "\t")
    return path


def made(source, folder, **changes):
    if isinstance(source, pl.DataFrame):
        path = STORE[0] / f"{source.with_row_index('place').hash_rows().sum()}.parquet"
        if not path.exists():
            source.write_parquet(path)
        source = path
    arguments = {"rows": ROWS, "columns": COLUMNS, "train": TRAIN, "label": "late", **changes}
    return prepare(source, arguments.pop("rows"), arguments.pop("columns"), folder, **arguments)


def files(folder):
    """What identifies each file: a new one has another inode or another time."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


# --- what is in it ---------------------------------------------------------------------------------------------------


def test_the_same_as_all_rows_at_once(source, tmp_path, small_blocks):
    """Bit for bit."""
    found = made(source, tmp_path / "cache")
    table = load(source, ROWS, [*COLUMNS.names, "late"])
    encoder = Encoder.fit(table, COLUMNS, np.arange(TRAIN))
    whole = encoder.encode(table)
    assert torch.equal(found.inputs.categorical, whole.categorical)
    assert (whole.categorical[TRAIN:] == 0).any()
    assert found.inputs.cardinalities == whole.cardinalities
    assert torch.equal(found.inputs.numeric, whole.numeric)
    assert found.encoder.statistics == encoder.statistics
    assert torch.equal(found.labels, labels(table, "late", "binary"))
    for mapped, tensor in zip(found.inputs.tensors, whole.tensors, strict=True):
        assert (mapped.dtype, mapped.stride()) == (tensor.dtype, tensor.stride())


def test_the_encoder_that_comes_with_it_gives_the_very_same_bits(source, tmp_path, small_blocks):
    found = made(source, tmp_path / "cache")
    table = load(source, ROWS, [*COLUMNS.names, "late"])
    assert found.digest == inputs_digest(found.encoder.encode(table), labels(table, "late", "binary"))
    assert found.digest == inputs_digest(found.inputs, found.labels)


def test_the_layout_of_the_file_does_not_matter(tmp_path):
    digests = set()
    for size in (1, 40, 500):
        TABLE.write_parquet(tmp_path / "table.parquet", row_group_size=size)
        digests.add(made(tmp_path / "table.parquet", tmp_path / "cache").digest)
    digests.add(made(TABLE, tmp_path / "other").digest)
    assert len(digests) == 1


@pytest.mark.parametrize("change", ["sorted", "rows on top", "another format"])
def test_where_a_row_stands_does_not_matter(change, tmp_path, small_blocks):
    expected = made(TABLE, tmp_path / "cache").digest
    if change == "another format":
        changed, rows = stored(TABLE, tmp_path, "csv"), ROWS
    elif change == "sorted":
        changed, rows = (
            TABLE.sort("price", "id"),
            TABLE["price"].arg_sort().arg_sort().to_numpy().astype(np.int64)[ROWS],
        )
    else:
        others = generated(1)[:50].with_columns(pl.col("carrier").fill_null("new"))
        changed, rows = pl.concat([others, TABLE]), ROWS + 50
    assert made(changed, tmp_path / "other", rows=rows).digest == expected


def test_a_row_that_is_gone_has_missing_values(source, tmp_path, small_blocks):
    """As if it were there and empty."""
    gone = np.isin(np.arange(400), [0, 7, 299, 300, 399])
    found = made(source, tmp_path / "cache", rows=np.where(gone, -1, ROWS))
    empty = pl.col(*COLUMNS.names, "late")
    blank = TABLE.with_columns(pl.when(pl.col("id").is_in(ROWS[gone])).then(None).otherwise(empty).name.keep())
    assert found.digest == made(blank, tmp_path / "other").digest
    assert found.labels.isnan().tolist() == gone.tolist()
    assert (found.inputs.categorical[gone] == 0).all()


def test_a_party_without_inputs_and_one_without_labels(tmp_path):
    only = made(TABLE, tmp_path / "a", columns=Columns())
    assert [tuple(each.shape) for each in (*only.inputs.tensors, only.labels)] == [(400, 0), (400, 0), (400,)]
    none = made(TABLE, tmp_path / "b", label=None)
    assert none.labels is None
    assert none.digest == inputs_digest(none.inputs)
    classes = made(TABLE, tmp_path / "c", label="gate", loss="softmax")
    assert torch.equal(classes.labels, torch.from_numpy(TABLE["gate"].to_numpy()[ROWS]))
    for folder in "abc":  # and once more from the files
        assert made_again(tmp_path / folder) in (only.digest, none.digest, classes.digest)


def made_again(folder):
    facts = json.loads((folder / "manifest.json").read_text())["facts"]
    columns = Columns(**{key: tuple(names) for key, names in facts["columns"].items()})
    before = files(folder)
    found = made(TABLE, folder, columns=columns, label=facts["label"], loss=facts["loss"] or "binary")
    assert files(folder) == before
    return found.digest


def test_writing_to_what_was_mapped_leaves_the_files_as_they_are(tmp_path):
    found = made(TABLE, tmp_path)
    found.inputs.numeric.zero_()
    found.inputs.categorical[0] += 1
    before = files(tmp_path)
    assert made(TABLE, tmp_path).digest == found.digest
    assert files(tmp_path) == before


def test_progress_counts_each_row_in_both_passes(tmp_path, small_blocks):
    told = []
    made(TABLE, tmp_path, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (800, 800)
    assert told == sorted(told)
    assert len(told) == 2 * 72  # blocks of 7 rows


# --- used again ------------------------------------------------------------------------------------------------------


def test_the_second_call_only_maps(source, tmp_path, monkeypatch):
    first = made(source, tmp_path / "cache")
    before = files(tmp_path / "cache")
    monkeypatch.setattr(cache._Making, "make", None)
    rows = np.memmap(tmp_path / "rows", np.int64, "w+", shape=ROWS.shape)
    rows[:] = ROWS
    again = made(str(source), tmp_path / "cache", rows=rows)
    assert again.digest == first.digest
    assert torch.equal(again.inputs.numeric, first.inputs.numeric)
    assert torch.equal(again.labels, first.labels)
    assert again.encoder.to_state() == first.encoder.to_state()
    assert files(tmp_path / "cache") == before


@pytest.mark.parametrize(
    "change",
    [
        {"rows": ROWS[::-1].copy()},
        {"rows": ROWS[:399]},
        {"train": 299},
        {"columns": Columns(("gate", "carrier"), ("seats", "price"), ("seats",))},
        {"columns": Columns(("carrier", "gate"), ("seats", "price"), ("price",))},
        {"label": None},
        {"loss": "softmax"},
    ],
    ids=["order", "rows", "train", "columns", "flags", "label", "loss"],
)
def test_other_arguments_make_it_anew(tmp_path, change):
    first = made(TABLE, tmp_path / "cache")
    other = made(TABLE, tmp_path / "cache", **change)
    assert other.digest == made(TABLE, tmp_path / "fresh", **change).digest != first.digest
    assert made(TABLE, tmp_path / "cache").digest == first.digest
    kept = {"categorical.bin", "numeric.bin", "labels.bin", "encoder.json", "manifest.json", "lock"}
    assert set(files(tmp_path / "cache")) == kept


def test_a_changed_source_gives_another_digest(source, tmp_path):
    first = made(source, tmp_path / "cache")
    changed = TABLE.with_columns(gate=pl.when(pl.col("id") == int(ROWS[5])).then(99).otherwise("gate"))
    changed = stored(changed, tmp_path, source.suffix[1:])
    os.utime(changed, ns=(1, 1))
    second = made(changed, tmp_path / "cache")
    assert second.digest != first.digest
    assert inputs_digest(first.inputs, first.labels) == first.digest, "what is in use was overwritten"


def test_what_was_prepared_before_is_used_whatever_has_become_of_the_source(tmp_path):
    first = made(TABLE, tmp_path / "cache")
    other = stored(TABLE.with_columns(gate=pl.lit(99)).head(7), tmp_path, "csv")
    for source in (other, tmp_path / "gone.csv"):
        again = made(source, tmp_path / "cache", rows=None)
        assert again.digest == first.digest
        assert torch.equal(again.labels, first.labels)
    (tmp_path / "cache" / "labels.bin").unlink()
    for folder, change in (("cache", {}), ("nothing", {}), ("cache", {"train": 299})):
        with pytest.raises(StorageError, match="is not what this run began with"):
            made(TABLE, tmp_path / folder, rows=None, **change)


def test_a_source_that_changes_while_it_is_read(tmp_path):
    path = stored(TABLE, tmp_path, "parquet")
    with pytest.raises(DataError, match=r"table\.parquet was changed while it was read"):
        made(path, tmp_path / "cache", progress=lambda done, total: os.utime(path))
    assert set(files(tmp_path / "cache")) == {"lock"}


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


DAMAGE = {
    "flipped": flip,
    "cut": lambda path: os.truncate(path, path.stat().st_size - 2),  # the last byte may be a new line
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
    "foreign": lambda path: path.write_bytes(b"[[[]]]"),
    "other": lambda path: path.write_bytes(b'{"facts": null, "digest": 3}'),
}


@pytest.mark.parametrize("name", ["categorical.bin", "numeric.bin", "labels.bin", "encoder.json", "manifest.json"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_made_anew(tmp_path, name, damage):
    first = made(TABLE, tmp_path).digest
    DAMAGE[damage](tmp_path / name)
    before = files(tmp_path)
    again = made(TABLE, tmp_path)
    assert again.digest == first == inputs_digest(again.inputs, again.labels)
    after = files(tmp_path)
    assert all(after[file] != before.get(file) for file in after if file != "lock")


@pytest.mark.parametrize("at", [1, 72, 73, 144])
def test_stopped_half_way_and_begun_again(tmp_path, small_blocks, at):
    calls = []

    def stop(done, total):
        calls.append(done)
        if len(calls) == at:
            raise KeyboardInterrupt

    whole = made(TABLE, tmp_path / "whole").digest
    made(TABLE, tmp_path / "cache", train=299)
    for name in ("numeric.new", "places.new", "manifest.json.new"):
        (tmp_path / "cache" / name).write_bytes(b"left by a process that was killed" * 1000)
    with pytest.raises(KeyboardInterrupt):
        made(TABLE, tmp_path / "cache", progress=stop)
    assert not (tmp_path / "cache" / "manifest.json").exists()
    assert made(TABLE, tmp_path / "cache").digest == whole


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"rows": np.array([0, 1, 0, 2]), "train": 2}, UsageError, "row 0 is twice in the common order"),
        ({"rows": np.array([3, -2]), "train": 2}, UsageError, "row number -2"),
        ({"rows": np.array([0, 500, 777]), "train": 2}, DataError, r"all of the 3 aligned rows \(2 are missing\)"),
        ({"rows": np.array([0, 1], np.int32), "train": 1}, UsageError, r"int32 \(2,\)"),
        ({"rows": np.zeros(0, np.int64), "train": 0}, UsageError, "at least one of them for training"),
        ({"train": 0}, UsageError, "0 training rows"),
        ({"train": 401}, UsageError, "401 training rows"),
        ({"columns": Columns(), "label": None}, UsageError, "name at least one"),
        ({"columns": Columns(("gates",))}, DataError, "no column 'gates'; it has: id, carrier"),
        ({"label": "latest"}, DataError, "no column 'latest'"),
        ({"loss": "hinge"}, UsageError, "no loss 'hinge'"),
        ({"columns": Columns(numeric=("carrier",))}, DataError, r"'carrier number \d+' in row \d+"),
    ],
)
def test_what_cannot_be_prepared(source, tmp_path, change, error, words):
    with pytest.raises(error, match=words):
        made(source, tmp_path / "cache", **change)
    assert not (tmp_path / "cache").exists() or set(files(tmp_path / "cache")) == {"lock"}


def test_rows_are_named_as_the_file_counts_them(tmp_path, small_blocks):
    rows = np.arange(400, 0, -1)
    wrong = TABLE.with_columns(late=pl.when(pl.col("id").is_in([0, 31, 250, 399])).then(2).otherwise("late"))
    with pytest.raises(
        LabelsError, match=r"row 31 \(counted from 0\) has the label 2 in the column 'late' \(and 2 others\)"
    ):
        made(wrong, tmp_path, rows=rows)
    infinite = TABLE.with_columns(price=pl.when(pl.col("id") == 93).then(float("inf")).otherwise("price"))
    for train in (100, 400):  # in the second pass, and in the first
        with pytest.raises(DataError, match="'price' holds inf in row 93 "):
            made(infinite, tmp_path, rows=rows, train=train)
    ignored = np.delete(np.arange(500), [0, 31, 250, 399])
    assert made(wrong, tmp_path, rows=ignored).inputs.numeric.isfinite().all()


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"none\.parquet can't be read .*correct the path"):
        made(tmp_path / "none.parquet", tmp_path / "cache")


def test_one_process_at_a_time(tmp_path):
    made(TABLE, tmp_path)
    with (tmp_path / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="another process prepares inputs"):
            made(TABLE, tmp_path)
    made(TABLE, tmp_path)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_full_disk_is_told_before_anything_is_written(tmp_path, monkeypatch, at):
    real, calls = os.posix_fallocate, []

    def full(fd, offset, size):
        calls.append(size)
        if len(calls) == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(fd, offset, size)

    monkeypatch.setattr(arrays.os, "posix_fallocate", full)
    with pytest.raises(StorageError, match=r"\.new can't be written \(No space left on device\): make room"):
        made(TABLE, tmp_path)
    assert set(files(tmp_path)) == {"lock"}
    assert len(made(TABLE, tmp_path).inputs) == 400


# --- memory ----------------------------------------------------------------------------------------------------------

MEASURED = """
import sys, threading, numpy as np
from tacit.align.cache import prepare
from tacit.align.tables import Columns

def anonymous():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

folder, count = sys.argv[1], int(sys.argv[2])
rows = np.load(f"{folder}/{count}.npy", mmap_mode="r")
peak, before, stopped = [0.0], anonymous(), threading.Event()

def watch():
    while not stopped.wait(0.002):
        peak[0] = max(peak[0], anonymous())

watching = threading.Thread(target=watch)
watching.start()
try:
    columns = Columns(("a", "b", "c"), tuple("uvwx"))
    made = prepare(f"{folder}/{count}.parquet", rows, columns, f"{folder}/cache", train=count // 2, label="y")
finally:
    stopped.set()
    watching.join()
assert len(made.inputs) == count
print(peak[0] - before, anonymous() - before)
"""


def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Ten times the rows, where the tensors alone are 97 MB: at the peak and for training afterwards."""
    peaks, afterwards = [], []
    for count in (200_000, 2_000_000):
        noise = np.random.default_rng(0)
        names = pl.Series([f"the name of the value {n}" for n in range(500)])
        codes = noise.integers(0, 500, count)
        columns = {"a": names[codes], "b": noise.integers(0, 9, count), "c": np.arange(count) % 7}
        numbers = {name: noise.random(count) for name in "uvwx"}
        table = pl.DataFrame({**columns, **numbers, "y": noise.integers(0, 2, count, dtype=np.int8)})
        table.write_parquet(tmp_path / f"{count}.parquet")
        np.save(tmp_path / f"{count}.npy", noise.permutation(count))
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, str(tmp_path), str(count)], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        peak, after = map(float, done.stdout.split())
        peaks.append(peak)
        afterwards.append(after)
    assert peaks[1] - peaks[0] < 60, f"{peaks} MB"
    assert afterwards[1] - afterwards[0] < 60, f"{afterwards} MB"


def test_a_batch_is_rows_of_the_files(tmp_path):
    found = made(TABLE, tmp_path)
    batch = found.inputs[torch.tensor([3, 1])]
    assert isinstance(batch, Inputs)
    assert torch.equal(batch.numeric, found.inputs.numeric.clone()[[3, 1]])
