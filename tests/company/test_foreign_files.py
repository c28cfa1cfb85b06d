"""Somebody else's messages: every form of file gives the same, and every mistake says what to pass."""

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import save_file

from tacit.company import foreign_files
from tacit.company.foreign_files import read_messages
from tacit.errors import DataError

STEPS, BATCH, WIDTH = 4, 8, 3
ROWS = STEPS * BATCH
G = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
Y = np.arange(ROWS) % 2
IDS = np.tile(np.arange(BATCH) + 100, STEPS)


def save(path, x, *, name="stuff"):
    """One array in the form that the path's end says."""
    kind = path.suffix
    if kind == ".npy":
        np.save(path, x)
    elif kind == ".npz":
        np.savez(path, **{name: x})
    elif kind == ".safetensors":
        save_file({name: torch.from_numpy(x).contiguous()}, path)
    elif kind in (".pt", ".pth"):
        torch.save(torch.from_numpy(x), path)
    elif kind == ".parquet" and x.ndim == 2:
        pl.DataFrame({name: pl.Series(x.tolist(), dtype=pl.List(pl.Float32))}).write_parquet(path)
    else:
        table = pl.DataFrame({f"c{i}": column for i, column in enumerate(np.atleast_2d(x.T))})
        table.write_parquet(path) if kind == ".parquet" else table.write_csv(path)
    return path


@pytest.fixture(name="pair")
def _pair(tmp_path):
    return {"gradients": save(tmp_path / "g.npy", G), "labels": save(tmp_path / "y.npy", Y), "batch_size": BATCH}


@pytest.mark.parametrize("labels", [".npy", ".npz", ".safetensors", ".parquet", ".csv", ".pt"])
@pytest.mark.parametrize("form", [".npy", ".npz", ".safetensors", ".parquet", ".csv", ".pt", ".pth"])
def test_every_form_of_file_gives_the_same(tmp_path, form, labels):
    g, y = save(tmp_path / f"g{form}", G), save(tmp_path / f"y{labels}", Y)
    found = read_messages(gradients=g, labels=y, batch_size=BATCH)
    assert torch.equal(found.view.gradient.float(), torch.from_numpy(G).reshape(STEPS, BATCH, WIDTH))
    assert found.labels.tolist() == Y.tolist()
    assert found.view.rows.tolist() == np.arange(ROWS).reshape(STEPS, BATCH).tolist()
    assert (found.revisited, found.notes) == (False, ())
    assert set(found.files) == {g.name, y.name}


def test_columns_of_numbers_are_a_row(tmp_path, pair):
    pl.DataFrame(G, schema=["a", "b", "c"]).write_parquet(tmp_path / "wide.parquet")
    found = read_messages(**pair | {"gradients": tmp_path / "wide.parquet"})
    assert torch.equal(found.view.gradient, torch.from_numpy(G).reshape(STEPS, BATCH, WIDTH))


@pytest.mark.parametrize("form", [".npy", ".npz", ".safetensors", ".pt"])
def test_batches_are_taken_as_they_are(tmp_path, pair, form):
    path = save(tmp_path / f"b{form}", G.reshape(STEPS, BATCH, WIDTH, 1))
    found = read_messages(**pair | {"gradients": path, "batch_size": 5})
    assert torch.equal(found.view.gradient, torch.from_numpy(G).reshape(STEPS, BATCH, WIDTH))


def test_a_list_of_batches_is_taken_as_it_is_and_one_of_other_lengths_as_rows(tmp_path, pair):
    path, labels = tmp_path / "list.pt", tmp_path / "labels.pt"
    torch.save(list(torch.from_numpy(G).split(BATCH)), path)
    torch.save(list(torch.from_numpy(Y).split(BATCH)), labels)
    found = read_messages(**pair | {"gradients": path, "labels": labels, "batch_size": 5})
    assert torch.equal(found.view.gradient, torch.from_numpy(G).reshape(STEPS, BATCH, WIDTH))
    torch.save(list(torch.from_numpy(G).split(9)), path)
    found = read_messages(**pair | {"gradients": path, "batch_size": 9})
    assert torch.equal(found.view.gradient.flatten(0, 1), torch.from_numpy(G)[:27])
    assert "5 of 32 rows" in found.notes[0]
    torch.save([torch.ones(4, 3), torch.ones(4, 2)], path)
    with pytest.raises(DataError, match="whose rows differ in shape"):
        read_messages(**pair | {"gradients": path})
    torch.save([torch.tensor(1.0), torch.tensor(0.0)], labels)
    with pytest.raises(DataError, match="a list of single numbers: save them as one tensor"):
        read_messages(**pair | {"labels": labels})


def test_rows_that_fill_no_batch_are_left_out_and_that_is_said(pair):
    found = read_messages(**pair | {"batch_size": 9})
    assert found.view.gradient.shape == (3, 9, WIDTH)
    assert found.labels.tolist() == Y[:27].tolist()
    assert "5 of 32 rows" in found.notes[0]


def test_of_a_large_file_the_last_batches_are_looked_at_and_that_is_said(pair, monkeypatch):
    monkeypatch.setattr(foreign_files, "_MOST", 2 * BATCH * WIDTH)
    found = read_messages(**pair)
    assert torch.equal(found.view.gradient, torch.from_numpy(G[16:]).reshape(2, BATCH, WIDTH))
    assert found.labels.tolist() == Y[16:].tolist()
    assert "only the last 2 of 4 batches" in found.notes[0]


def test_rows_with_the_same_id_are_one_example(tmp_path, pair):
    found = read_messages(**pair, ids=save(tmp_path / "ids.npy", IDS))
    assert found.view.rows.tolist() == [list(range(BATCH))] * STEPS
    assert found.labels.tolist() == Y[:BATCH].tolist()
    assert found.revisited
    names = tmp_path / "names.npy"
    np.save(names, np.array([f"user {one}" for one in IDS]))
    assert read_messages(**pair, ids=names).view.rows.tolist() == found.view.rows.tolist()


@pytest.mark.parametrize(
    ("labels", "noted"),
    [
        (Y.astype(bool), False), (Y.astype(np.float32), False), (Y.astype(np.uint8), False), (Y.reshape(-1, 1), False),
        (Y.reshape(STEPS, BATCH), False), (2.0 * Y - 1, True), (np.where(Y == 1, "sold", "lost"), True),
    ],
    ids=["bool", "float", "uint8", "column", "batched", "signs", "names"],
)  # fmt: skip
def test_labels_may_be_any_two_values(tmp_path, pair, labels, noted):
    np.save(tmp_path / "y.npy", labels)
    found = read_messages(**pair)
    assert found.labels.tolist() == Y.tolist()
    assert bool(found.notes) == noted


def test_several_things_in_one_file_are_named(tmp_path, pair):
    np.savez(tmp_path / "all.npz", grads=G, label=Y, z=G + 1)
    path = tmp_path / "all.npz"
    found = read_messages(gradients=f"{path}:grads", labels=path, embeddings=f"{path}:z", batch_size=BATCH)
    assert found.labels.tolist() == Y.tolist()
    assert torch.allclose(found.view.embedding, found.view.gradient + 1)
    pl.DataFrame({"id": IDS, "y": Y, "grad": G.tolist()}).write_parquet(tmp_path / "all.parquet")
    path = tmp_path / "all.parquet"
    found = read_messages(gradients=path, labels=f"{path}:y", ids=f"{path}:id", batch_size=BATCH)
    assert found.revisited
    assert torch.allclose(found.view.gradient.float(), torch.from_numpy(G).reshape(STEPS, BATCH, WIDTH))


def test_labels_without_a_header_are_all_read(tmp_path, pair):
    (tmp_path / "y.csv").write_text("".join(f"{one}\n" for one in Y))
    assert read_messages(**pair | {"labels": tmp_path / "y.csv"}).labels.tolist() == Y.tolist()


def test_a_large_file_is_mapped_not_read(pair):
    rows = foreign_files.read_named(pair["gradients"], "gradients").rows
    rows[0, 0] = 7.0  # pages of our own: the file keeps what it has
    assert np.load(pair["gradients"])[0, 0] == G[0, 0]


def nan_at(row):
    x = G.copy()
    x[row, 1] = np.nan
    return x


WRONG = {
    "lengths": ({"labels": Y[:-1]}, r"y\.npy is of shape \(31,\).*g\.npy has 32 rows"),
    "nan": ({"gradients": nan_at(13)}, r"g\.npy: row 13 \(counted from 0\)"),
    "classes": ({"labels": np.arange(ROWS) % 3}, r"y\.npy holds 3 kinds of labels \(0, 1, 2\)"),
    "one class": ({"labels": np.zeros(ROWS)}, "pass rows of both classes"),
    "labels nan": ({"labels": np.where(Y == 1, np.nan, 0.0)}, r"y\.npy: row 1 .* has no label"),
    "empty": ({"gradients": G[:0]}, r"g\.npy is of shape \(0, 3\), which holds nothing"),
    "flat": ({"gradients": G[:, 0]}, r"g\.npy is of shape \(32,\), one number for each row"),
    "number": ({"gradients": np.float32(3)}, "holds a single number"),
    "complex": ({"gradients": G.astype(np.complex64)}, "complex"),
    "text": ({"gradients": G.astype(str)}, "holds text where numbers belong"),
    "wide labels": ({"labels": np.eye(2)[Y]}, r"y\.npy is of shape \(32, 2\), 64 values in all"),
    "clean": ({"clean": G[:16]}, r"clean\.npy is of shape \(16, 3\), 16 rows in all, and .*g\.npy has 32"),
    "clean width": ({"clean": G[:, :2]}, r"clean\.npy is of shape \(32, 2\) and .*g\.npy is of shape \(32, 3\)"),
    "ids": ({"ids": IDS[:-2]}, r"ids\.npy is of shape \(30,\)"),
    "ids fractions": ({"ids": IDS / 7}, "these have fractions"),
    "two labels": ({"ids": np.zeros(ROWS, np.int64)}, "another value than a later row with the same id"),
    "objects": ({"gradients": np.array([G, None], dtype=object)}, "holds Python objects.*save plain numbers"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_names_the_file_what_it_holds_and_what_to_pass(tmp_path, pair, case):
    changed, said = WRONG[case]
    for name, value in changed.items():
        pair[name] = tmp_path / {"gradients": "g.npy", "labels": "y.npy"}.get(name, f"{name}.npy")
        np.save(pair[name], value, allow_pickle=True)
    with pytest.raises(DataError, match=said):
        read_messages(**pair)


BAD = {
    "missing": ("none.npy", None, "is not there: pass the file"),
    "form": ("g.xlsx", b"x", "is none of .npy"),
    "npy": ("bad.npy", b"\x93NUMPY nonsense", "can't be read as .npy"),
    "npz": ("bad.npz", b"PK nonsense", "can't be read as .npz"),
    "safetensors": ("bad.safetensors", b"\xff" * 40, "can't be read as .safetensors"),
    "parquet": ("bad.parquet", b"nonsense", "can't be read as .parquet"),
    "pt": ("bad.pt", b"nonsense", "nothing else is ever unpickled"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_can_not_be_read_is_named(tmp_path, pair, case):
    name, content, said = BAD[case]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        read_messages(**pair | {"gradients": tmp_path / name})
    assert name in str(caught.value)


def test_names_that_are_not_in_a_file_are_told_with_those_that_are(tmp_path, pair):
    path = tmp_path / "all.npz"
    np.savez(path, left=G, right=G)
    with pytest.raises(DataError, match=r"holds several things .left, right.: say which are the gradients"):
        read_messages(**pair | {"gradients": path})
    with pytest.raises(DataError, match="nothing of the name 'grads', only: left, right"):
        read_messages(**pair | {"gradients": f"{path}:grads"})


def test_ragged_and_empty_cells_of_a_table_are_told(tmp_path, pair):
    pl.DataFrame({"g": [[1.0, 2.0], [1.0]]}).write_parquet(tmp_path / "g.parquet")
    with pytest.raises(DataError, match="rows of 1 to 2 numbers"):
        read_messages(**pair | {"gradients": tmp_path / "g.parquet"})
    pl.DataFrame({"y": [0, None, 1]}).write_parquet(tmp_path / "y.parquet")
    with pytest.raises(DataError, match=r"y.parquet:y: row 1 .* is empty"):
        read_messages(**pair | {"labels": tmp_path / "y.parquet"})


def test_inputs_are_one_row_for_each_example(tmp_path, pair):
    x = np.tile(np.arange(BATCH * 2.0).reshape(BATCH, 2), (STEPS, 1))
    ids = save(tmp_path / "ids.npy", IDS)
    found = read_messages(embeddings=pair["gradients"], inputs=save(tmp_path / "x.npy", x), ids=ids, batch_size=BATCH)
    assert found.inputs.tolist() == x[:BATCH].tolist()
    assert found.view.embedding.shape == (STEPS, BATCH, WIDTH)
    assert found.labels is None
