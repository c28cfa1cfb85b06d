"""Somebody else's messages: what a file says is taken as it is, and every mistake says what to pass."""

import io
import zipfile

import numpy as np
import pytest
import torch

from tacit.errors import DataError
from tacit.split import foreign_files
from tacit.split.foreign_files import ARRAYS, read_messages

STEPS, BATCH, WIDTH = 4, 8, 3
ROWS = STEPS * BATCH
G = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
Y = np.arange(ROWS) % 2
IDS = np.tile(np.arange(BATCH) + 100, STEPS)


@pytest.fixture(name="read")
def _read(tmp_path):
    """Read a file with gradients and labels, or what is given in their place; None for none of them."""

    def read(*, batch_size=BATCH, needed=("gradients", "labels"), leave=(), **changed):
        arrays = {"gradients": G, "labels": Y} | changed
        np.savez(tmp_path / "m.npz", **{name: x for name, x in arrays.items() if x is not None})
        return read_messages(tmp_path / "m.npz", needed=needed, leave=leave, batch_size=batch_size)

    return read


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_rows_are_cut_into_batches(tmp_path, save):
    save(tmp_path / "m.npz", labels=Y, gradients=G)
    found = read_messages(tmp_path / "m.npz", needed=("gradients", "labels"), batch_size=BATCH)
    assert torch.equal(found.view.gradient.float(), torch.from_numpy(G).reshape(STEPS, BATCH, WIDTH))
    assert found.labels.tolist() == Y.tolist()
    assert found.view.rows.tolist() == np.arange(ROWS).reshape(STEPS, BATCH).tolist()
    assert (found.named, found.revisited, found.notes) == (False, False, ())
    assert set(found.files) == {"m.npz"}


def test_batches_are_taken_as_they_are(read):
    found = read(gradients=G.reshape(STEPS, BATCH, WIDTH, 1), batch_size=5)
    assert torch.equal(found.view.gradient, torch.from_numpy(G).reshape(STEPS, BATCH, WIDTH))


def test_rows_that_fill_no_batch_are_left_out_and_that_is_said(read):
    found = read(batch_size=9)
    assert found.view.gradient.shape == (3, 9, WIDTH)
    assert found.labels.tolist() == Y[:27].tolist()
    assert "5 of 32 rows" in found.notes[0]


def test_of_many_rows_the_last_batches_are_looked_at_and_that_is_said(read, monkeypatch):
    monkeypatch.setattr(foreign_files, "_MOST", 2 * BATCH * WIDTH)
    found = read()
    assert torch.equal(found.view.gradient, torch.from_numpy(G[16:]).reshape(2, BATCH, WIDTH))
    assert found.labels.tolist() == Y[16:].tolist()
    assert "only the last 2 of 4 batches" in found.notes[0]


def test_rows_with_the_same_id_are_one_example(read):
    found = read(ids=IDS)
    assert found.view.rows.tolist() == [list(range(BATCH))] * STEPS
    assert found.labels.tolist() == Y[:BATCH].tolist()
    assert found.named
    assert found.revisited
    assert read(ids=np.array([f"user {one}" for one in IDS])).view.rows.tolist() == found.view.rows.tolist()


@pytest.mark.parametrize(
    ("labels", "noted"),
    [
        (Y.astype(bool), False), (Y.astype(np.float32), False), (Y.astype(np.uint8), False), (Y.reshape(-1, 1), False),
        (Y.reshape(STEPS, BATCH), False), (2.0 * Y - 1, True), (np.where(Y == 1, "sold", "lost"), True),
    ],
    ids=["bool", "float", "uint8", "column", "batched", "signs", "names"],
)  # fmt: skip
def test_labels_may_be_any_two_values(read, labels, noted):
    found = read(labels=labels)
    assert found.labels.tolist() == Y.tolist()
    assert bool(found.notes) == noted


def test_all_that_a_file_holds_is_read_but_what_is_left(read):
    every = {"embeddings": G + 1, "clean": G + 2, "inputs": G[:, :2], "ids": np.arange(ROWS)}
    assert set(every) | {"gradients", "labels"} == set(ARRAYS)
    found = read(**every)
    assert torch.allclose(found.view.embedding, found.view.gradient + 1)
    assert torch.allclose(found.clean, found.view.gradient + 2)
    assert found.inputs.tolist() == G[:, :2].tolist()
    found = read(**every, needed=("embeddings", "inputs"), leave=("gradients", "labels", "clean"))
    assert (found.labels, found.clean) == (None, None)
    assert torch.equal(found.view.embedding.flatten(0, 1), torch.from_numpy(G + 1))


def nan_at(row):
    x = G.copy()
    x[row, 1] = np.nan
    return x


WRONG = {
    "lengths": ({"labels": Y[:-1]}, r"m\.npz:labels is of shape \(31,\).*m\.npz:gradients has 32 rows"),
    "nan": ({"gradients": nan_at(13)}, r"m\.npz:gradients: row 13 \(counted from 0\)"),
    "classes": ({"labels": np.arange(ROWS) % 3}, r"m\.npz:labels holds 3 kinds of labels \(0, 1, 2\)"),
    "one class": ({"labels": np.zeros(ROWS)}, "pass rows of both classes"),
    "labels nan": ({"labels": np.where(Y == 1, np.nan, 0.0)}, r"m\.npz:labels: row 1 .* has no label"),
    "empty": ({"gradients": G[:0]}, r"m\.npz:gradients is of shape \(0, 3\), which holds nothing"),
    "flat": ({"gradients": G[:, 0]}, r"m\.npz:gradients is of shape \(32,\), one number for each row"),
    "number": ({"gradients": np.float32(3)}, "m.npz:gradients holds a single number"),
    "complex": ({"gradients": G.astype(np.complex64)}, "complex"),
    "text": ({"gradients": G.astype(str)}, "holds text where numbers belong"),
    "wide labels": ({"labels": np.eye(2)[Y]}, r"m\.npz:labels is of shape \(32, 2\), 64 values in all"),
    "clean": ({"clean": G[:16]}, r"m\.npz:clean is of shape \(16, 3\), 16 rows in all, and .*:gradients has 32"),
    "clean width": ({"clean": G[:, :2]}, r":clean is of shape \(32, 2\) and .*:gradients is of shape \(32, 3\)"),
    "ids": ({"ids": IDS[:-2]}, r"m\.npz:ids is of shape \(30,\)"),
    "ids fractions": ({"ids": IDS / 7}, "these have fractions"),
    "two labels": ({"ids": np.zeros(ROWS, np.int64)}, "another value than a later row with the same id"),
    "objects": ({"gradients": np.array([G, None], dtype=object)}, "holds Python objects.*save plain numbers"),
    "no labels": ({"labels": None}, r"m\.npz holds no array 'labels', which this side needs: add it"),
    "another name": ({"id": IDS}, r"m\.npz holds an array 'id': arrays are called gradients, .*inputs and ids"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_names_the_array_what_it_holds_and_what_to_pass(read, case):
    changed, said = WRONG[case]
    with pytest.raises(DataError, match=said):
        read(**changed)


def packed(member, content):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        file.writestr(member, content)
    return held.getvalue()


def saved(**arrays):
    held = io.BytesIO()
    np.savez_compressed(held, **arrays)
    return held.getvalue()


WHOLE = saved(gradients=G, labels=Y)
BAD = {
    "missing": (None, "is not there: pass the .npz file"),
    "nonsense": (b"nonsense", "is no .npz file"),
    "half": (WHOLE[: len(WHOLE) // 2], "is no .npz file, or only a part of one"),
    "changed": (WHOLE[:120] + b"\0" * 40 + WHOLE[160:], "can't be read as .npz"),
    "npy": (b"\x93NUMPY nonsense", "is no .npz file"),
    "damaged": (packed("gradients.npy", b"\x93NUMPY nonsense"), "holds no array 'labels'"),
    "no arrays": (packed("readme.txt", b"hello"), "holds an array 'readme.txt'"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_can_not_be_read_is_named(tmp_path, case):
    content, said = BAD[case]
    if content is not None:
        (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        read_messages(tmp_path / "bad.npz", needed=("gradients", "labels"))
    assert "bad.npz" in str(caught.value)


def test_inputs_are_one_row_for_each_example(read):
    x = np.tile(np.arange(BATCH * 2.0).reshape(BATCH, 2), (STEPS, 1))
    found = read(gradients=None, labels=None, embeddings=G, inputs=x, ids=IDS, needed=("embeddings", "inputs"))
    assert found.inputs.tolist() == x[:BATCH].tolist()
    assert found.view.embedding.shape == (STEPS, BATCH, WIDTH)
    assert found.labels is None
