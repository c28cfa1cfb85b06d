"""Fashion-MNIST's files: what is read, and what is said where they are not as they should be."""

import gzip
import struct

import pytest
import torch

from tacit.errors import DataError, UsageError
from tacit.lab.data import fashion
from tests.lab.data.official import save_fashion


def idx(values: torch.Tensor) -> bytes:
    head = bytes([0, 0, 8, values.ndim]) + b"".join(struct.pack(">I", side) for side in values.shape)
    return head + values.numpy().tobytes()


@pytest.fixture
def folder(tmp_path):
    """A small data set in the official format, one part packed and the other one plain."""
    generator = torch.Generator().manual_seed(0)
    for name, rows, packed in (("train", 30, True), ("t10k", 12, False)):
        images = torch.randint(256, (rows, 28, 28), generator=generator, dtype=torch.uint8)
        labels = torch.randint(10, (rows,), generator=generator, dtype=torch.uint8)
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            path = tmp_path / f"{name}-{kind}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(idx(values)) if packed else idx(values))
    return tmp_path


def test_both_parts_are_read_packed_or_not(folder):
    data = fashion.pictures(folder)
    assert (len(data.train), len(data.test)) == (30, 12)
    assert data.train.images.shape == (30, 784)
    assert data.train.squares.shape == (30, 1, 28, 28)
    assert data.train.images.dtype == torch.float32
    assert data.train.labels.dtype == torch.int64
    raw = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())
    assert torch.equal((data.train.images * 255).round().to(torch.uint8).flatten(), torch.tensor(list(raw[16:])).byte())
    assert 0 <= float(data.train.images.min()) < 0.02
    assert 0.98 < float(data.train.images.max()) <= 1


def test_the_first_rows_are_taken(folder):
    whole, some = fashion.pictures(folder), fashion.pictures(folder, rows=7, test_rows=3)
    assert torch.equal(some.train.images, whole.train.images[:7])
    assert torch.equal(some.test.labels, whole.test.labels[:3])


@pytest.mark.parametrize("option", ["rows", "test_rows"])
def test_row_counts_out_of_range_are_refused(folder, option):
    with pytest.raises(UsageError, match=option):
        fashion.pictures(folder, **{option: 0})
    with pytest.raises(UsageError, match="ask for fewer"):
        fashion.pictures(folder, **{option: 31})


def test_a_missing_file_says_how_to_get_it(folder):
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte is missing.*apt-get install dataset-fashion-mnist"):
        fashion.pictures(folder)
    with pytest.raises(DataError, match="is missing"):
        fashion.read_idx(folder / "nothing")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "begins with nothing"),
        (b"\0\0\x0d\x01" + struct.pack(">I", 1) + b"\0\0\0\0", "begins with 00 00 0d 01"),
        (b"\0\0\x08\0", "00 00 08 00"),
        (b"\0\0\x08\x03\0\0", "holds 0 values"),
        (idx(torch.zeros(12, 28, 28, dtype=torch.uint8))[:-1], "holds 9407 values .* 12 x 28 x 28"),
        (idx(torch.zeros(12, 28, 28, dtype=torch.uint8)) + b"\0", "holds 9409 values"),
        (idx(torch.zeros(12, 27, 28, dtype=torch.uint8)), "28 x 28 are needed"),
        (idx(torch.zeros(11, 28, 28, dtype=torch.uint8)), "for the 11 pictures"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(folder, content, words):
    (folder / "t10k-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        fashion.pictures(folder)
    assert "t10k-" in str(caught.value)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-20], lambda b: b"no gzip at all", lambda b: b[:40] + b"\xff" * 40 + b[80:]]
)
def test_a_damaged_package_is_named(folder, damage):
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match="train-images"):
        fashion.pictures(folder)


def test_a_class_that_does_not_exist_is_named_with_its_row(folder):
    labels = torch.zeros(12, dtype=torch.uint8)
    labels[5] = 10
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(labels))
    with pytest.raises(DataError, match="class 10 in row 5"):
        fashion.pictures(folder)


def test_generated_pictures_are_seeded_and_can_be_learnt_and_reconstructed():
    data, again, other = fashion.generated(600, 3), fashion.generated(600, 3), fashion.generated(600, 4)
    assert torch.equal(data.train.images, again.train.images)
    assert not torch.equal(data.train.images, other.train.images)
    assert (len(data.train), len(data.test)) == (600, 150)
    assert float(data.train.images.min()) >= 0
    assert float(data.train.images.max()) <= 1
    means = torch.stack([data.train.images[data.train.labels == c].mean(0) for c in range(10)])
    nearest = torch.cdist(data.test.images, means).argmin(1)
    assert float((nearest == data.test.labels).float().mean()) > 0.8, "a class has a pattern of its own"
    centred = data.train.images - data.train.images.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    rest = data.test.images - data.train.images.mean(0)
    left = rest - rest @ directions[:24].T @ directions[:24]
    assert float(left.pow(2).sum() / rest.pow(2).sum()) < 0.2, "a few directions hold most of a picture"


def test_what_is_saved_is_read_again(tmp_path):
    made = fashion.generated(40, 0, test_rows=11)
    save_fashion(made, tmp_path / "new")
    read = fashion.pictures(tmp_path / "new")
    assert torch.equal(read.train.labels, made.train.labels)
    assert (len(read.train), len(read.test)) == (40, 11)
    assert float((read.test.images - made.test.images).abs().max()) <= 0.5 / 255 + 1e-6


@pytest.mark.skipif(not fashion.FOLDER.is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_the_real_files():
    data = fashion.pictures(test_rows=10_000)
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    assert data.test.labels[:5].tolist() == [9, 2, 1, 1, 6]
    assert torch.equal(data.train.labels.bincount(), torch.full((10,), 6000))
    assert float(data.train.images.mean()) == pytest.approx(0.286, abs=0.001)
