"""Criteo's format: what is learnt from whom, what is kept, and how much memory it takes."""

import gzip
import json
import os
import subprocess
import sys

import pytest
import torch

from benchmarks import _official_files
from tacit.errors import DataError, StorageError, UsageError
from tacit.lab.data import criteo
from tests.lab.data.official import sides

ROWS = 1500


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = _official_files.write("criteo", tmp_path_factory.mktemp("criteo"), ROWS, seed=3)
    return file.read_bytes()


@pytest.fixture
def file(text, tmp_path):
    (tmp_path / "train.txt").write_bytes(text)
    return tmp_path / "train.txt"


def by_hand(text, test_share=0.1, seed=0, sample=1.0, min_count=1):
    """The same in plain Python, line by line."""
    lines = [line.split("\t") for line in text.decode().splitlines()]
    side = sides(len(lines), sample=sample, test_share=test_share, seed=seed)
    train = [line for line, which in zip(lines, side, strict=True) if which == 1]
    test = [line for line, which in zip(lines, side, strict=True) if which == 2]
    codes, ranges = [], []
    for column in range(14, 40):
        counts = {}
        for line in train:
            if line[column]:
                value = int(line[column], 16)
                counts[value] = counts.get(value, 0) + 1
        kept = sorted((value for value in counts if counts[value] >= min_count), key=lambda v, c=counts: (-c[v], v))
        codes.append({value: code for code, value in enumerate(kept, 2)})
    for column in range(1, 14):
        numbers = [float(line[column] or 0) for line in train]
        ranges.append((min(numbers), max(numbers)))

    def encoded(chosen):
        categories = [
            [1 if not line[14 + c] else known.get(int(line[14 + c], 16), 0) for c, known in enumerate(codes)]
            for line in chosen
        ]
        numbers = [
            [min(max((float(line[1 + c] or 0) - low) / (high - low), 0), 1) for c, (low, high) in enumerate(ranges)]
            for line in chosen
        ]
        return categories, numbers, [float(line[0]) for line in chosen]

    return encoded(train), encoded(test), [len(known) + 2 for known in codes]


@pytest.mark.parametrize("options", [{}, {"sample": 0.4, "seed": 7, "test_share": 0.3, "min_count": 5}])
def test_it_is_what_plain_python_makes_of_the_lines(file, text, options):
    data = criteo.load(file.parent, **options)
    train, test, cardinalities = by_hand(text, **options)
    assert list(data.inputs.cardinalities) == cardinalities
    for rows, (categories, numbers, labels) in ((data.train, train), (data.test, test)):
        assert rows.features[0].dtype == torch.int32
        assert rows.features[0].tolist() == categories
        torch.testing.assert_close(rows.features[1], torch.tensor(numbers))
        assert rows.labels.tolist() == labels
        assert rows.shared


def test_packing_changes_nothing(file, text):
    plain = criteo.load(file)
    packed = file.with_name("other.txt.gz")
    packed.write_bytes(gzip.compress(text))
    other = criteo.load(packed)
    assert torch.equal(plain.train.features[0], other.train.features[0])
    assert torch.equal(plain.test.features[1], other.test.features[1])


def test_test_rows_teach_nothing(file, text):
    before = criteo.load(file)
    lines = text.decode().splitlines()
    side = sides(len(lines))
    strange = "\t".join(["0", *["99999999"] * 13, *["fffffff0"] * 26])
    file.write_text("\n".join(strange if which == 2 else line for line, which in zip(lines, side, strict=True)))
    after = criteo.load(file)
    assert after.inputs == before.inputs
    for one, other in zip(before.train.features, after.train.features, strict=True):
        assert torch.equal(one, other)
    assert after.test.features[0].unique().tolist() == [0]
    assert after.test.features[1].unique().tolist() == [1.0]


def test_what_was_made_is_used_again_until_something_changes(file, text):
    calls = []
    first = criteo.load(file, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] == 2 * 39, "half of it is reading, then every column"
    assert calls == sorted(calls)
    calls.clear()
    again = criteo.load(file, progress=lambda *call: calls.append(call))
    assert not calls
    assert torch.equal(first.train.features[0], again.train.features[0])
    criteo.load(file, seed=1, progress=lambda *call: calls.append(call))
    assert calls
    os.utime(file, (1, 1))
    calls.clear()
    criteo.load(file, progress=lambda *call: calls.append(call))
    assert calls
    assert len(list((file.parent / "train.txt.tacit").glob("encoded-*"))) == 1, "what is old is gone"


@pytest.mark.parametrize("damage", ["about.json", "categorical.npy", "labels.npy"])
def test_a_damaged_cache_is_made_anew(file, damage):
    first = criteo.load(file).test.features[0].clone()
    (encoded,) = (file.parent / "train.txt.tacit").glob("encoded-*")
    (encoded / damage).write_bytes((encoded / damage).read_bytes()[:-7])
    assert torch.equal(criteo.load(file).test.features[0], first)


def test_a_cache_elsewhere_leaves_the_folder_of_the_file_as_it_is(file, tmp_path):
    criteo.load(file, cache=tmp_path / "cache")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cache", "train.txt"]
    (tmp_path / "blocked").write_text("")
    with pytest.raises(StorageError, match="can't be written"):
        criteo.load(file, cache=tmp_path / "blocked")


def test_rows_takes_the_beginning(file):
    few, everything = criteo.load(file, rows=400), criteo.load(file)
    assert len(few.train) + len(few.test) == 400
    assert len(everything.train) + len(everything.test) == ROWS
    assert torch.equal(few.train.labels, everything.train.labels[: len(few.train)])


def test_a_bad_row_raises_with_its_line_where_it_is_used(file, text):
    lines = text.splitlines()
    lines[700] = b"\t".join(lines[700].split(b"\t")[:20])
    lines[1400] = b"2" + lines[1400][1:]
    file.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match=r"train\.txt, line 701: the line has 20 fields, not 40: correct it"):
        criteo.load(file)
    assert len(criteo.load(file, rows=600).train) > 0
    lines[700] = lines[701]
    file.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match="line 1401: label is '2', not 0 or 1"):
        criteo.load(file)


def test_a_killed_run_begins_anew(file, text):
    killed = f"""
import os, signal
from tacit.lab.data import criteo
def count(done, total):
    if done == 50:
        os.kill(os.getpid(), signal.SIGKILL)
criteo.load({str(file)!r}, progress=count)
"""
    done = subprocess.run([sys.executable, "-c", killed], timeout=120, check=False)
    assert done.returncode == -9
    folder = file.parent / "train.txt.tacit"
    (begun,) = folder.glob("encoded-*")
    assert begun.suffix == ".part"
    data = criteo.load(file)
    (made,) = folder.glob("encoded-*")
    assert sorted(each.name for each in made.iterdir()) == [
        "about.json",
        "categorical.npy",
        "labels.npy",
        "numeric.npy",
    ]
    assert data.train.features[0].tolist() == by_hand(text)[0][0]


@pytest.mark.parametrize(
    "options",
    [{"rows": 1}, {"sample": 0.0}, {"sample": 1.5}, {"test_share": 0.0}, {"min_count": 0}],
)
def test_wrong_options_are_named(file, options):
    (name,) = options
    with pytest.raises(UsageError, match=name):
        criteo.load(file, **options)


def test_too_few_rows_for_both_sides(file):
    with pytest.raises(DataError, match="no row for training or none for testing"):
        criteo.load(file, rows=3, test_share=0.001)


def test_a_missing_file_says_where_to_get_it(tmp_path):
    for path in (tmp_path, tmp_path / "train.txt"):
        with pytest.raises(DataError, match="Display Advertising Challenge"):
            criteo.load(path)


MEASURED = """
import json, sys
from tacit.lab.data import criteo
for name in sys.argv[1:]:
    data = criteo.load(name)
    print(json.dumps([peak() / 2**20, len(data.train) + len(data.test)]))
"""


def test_memory_does_not_grow_with_the_table(tmp_path, alone):
    """What six times the rows take more, after a first file has warmed everything up: what is mapped counts, too."""
    line = "1\t" + "\t".join(["12345"] * 13 + ["0a1b2c3d"] * 26) + "\n"
    sizes = (30_000, 180_000)
    for rows in sizes:
        (tmp_path / f"{rows}.txt").write_text(line * rows)
    files = [str(tmp_path / f"{rows}.txt") for rows in sizes]
    (before, few), (after, many) = map(json.loads, alone(MEASURED, *files).splitlines())
    assert (few, many) == sizes
    assert after < before + 170, (before, after)  # of text 47 MB, of arrays 23 MB; as cells they are 240 MB more
