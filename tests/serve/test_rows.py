"""The table of a feature party that serves: held as the model takes it, read again, mistakes told at the start."""

import numpy as np
import polars as pl
import pytest
import torch

from tacit.align.ids import read_ids
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.contracts import Message
from tacit.errors import DataError
from tacit.serve.answering import Answering
from tacit.serve.halves import load_embedder
from tacit.serve.rows import ServedTable
from tacit.serve.tokens import token_key, tokens_of
from tests.serve.files import copied

COLUMNS = ("port", "wind", "rain")


@pytest.fixture(name="world")
def _world(exchanged, tmp_path):
    return copied(exchanged.path, tmp_path)


def airport(world, rows=""):
    settings = world / "airport" / "party.toml"
    kept = [line for line in settings.read_text().splitlines() if not line.startswith("serve.")]
    settings.write_text("\n".join([*kept, f'serve.rows = "{rows}"\n'] if rows else [*kept, ""]))
    return Folder(world / "airport")


def table_of(world):
    return pl.read_parquet(world / "airport" / "data.parquet").select("id", *COLUMNS)


def test_a_file_is_held_as_the_model_takes_it(world):
    whole, embedder = table_of(world), load_embedder(world / "airport", "test")
    held = ServedTable(airport(world), embedder.columns).held()
    assert held.ids.equals(whole.select("id"))
    some = torch.tensor([7, 300, 0, 41])
    expected = embedder.embed(whole[some.tolist()])
    assert np.array_equal(embedder.embed_inputs(held.inputs[some]), expected)
    assert np.array_equal(embedder.embed_inputs(held.inputs[some[:1]]), expected[:1])
    assert embedder.embed_inputs(held.inputs[some[:0]]).shape == (0, embedder.width)


def test_a_file_is_read_again_when_it_has_changed_and_a_spoilt_one_leaves_the_old_rows(world):
    path, embedder = world / "airport" / "data.parquet", load_embedder(world / "airport", "test")
    rows, before, logged = ServedTable(airport(world), COLUMNS), table_of(world), []
    first = rows.held()
    assert rows.held() is first
    folder = airport(world)
    answering = Answering(
        folder, folder.run_folder(folder.terms), embedder, rows, lambda *what, **_: logged.append(what)
    )

    def known():
        """For each row of the first table whether it is known, and its bytes."""
        return answering.answer(Message(1, "tokens", torch.from_numpy(tokens), b"")).payload.numpy()

    tokens = tokens_of(token_key(aligned(folder)), read_ids(before, "id").hashes)
    told = known()
    assert told[:, 0].all()
    path.write_bytes(b"half a file")
    with pytest.raises(DataError, match=r"data\.parquet can't be read"):
        rows.held()
    assert np.array_equal(known(), told)
    before.drop("rain").write_parquet(path)
    with pytest.raises(DataError, match="has no column 'rain'"):
        rows.held()
    changed = before.head(5).with_columns(wind=pl.lit(7.0))
    changed.write_parquet(path)
    answering.refresh()
    assert rows.held().ids.equals(changed.select("id"))
    assert np.array_equal(known()[:5, 1:], embedder.embed(changed))
    assert not known()[5:].any(), "the others are gone"
    assert not logged
    answering.close()


def test_an_id_that_two_rows_have_is_nobodys(world):
    twice = pl.concat([table_of(world), table_of(world).head(1)])
    twice.write_parquet(world / "airport" / "twice.parquet")
    folder = airport(world, "twice.parquet")
    embedder, rows = load_embedder(folder, "test"), ServedTable(folder, COLUMNS)
    answering = Answering(folder, folder.run_folder(folder.terms), embedder, rows, lambda *_, **__: None)
    assert answering.known == len(twice) - 2
    answering.close()


def test_ids_of_several_columns_of_other_kinds(world):
    settings = world / "airport" / "party.toml"
    settings.write_text(settings.read_text().replace('ids = ["id"]', 'ids = ["day", "flight"]'))
    first, many = pl.date(2026, 1, 1), len(table_of(world))
    numbers = pl.Series("flight", np.arange(many) + 2**40)
    table = table_of(world).with_columns(numbers, day=first + pl.duration(days=pl.int_range(pl.len()) % 7)).drop("id")
    table = table.select("day", "flight", *COLUMNS)
    table.write_parquet(world / "airport" / "days.parquet")
    held = ServedTable(airport(world, "days.parquet"), COLUMNS).held()
    assert held.ids.equals(table.select("day", "flight"))


# --- what is told at the start ---------------------------------------------------------------------------------------


def test_columns_that_are_missing_or_of_another_kind_are_named_at_the_start(world):
    table = table_of(world)
    for other, match in (
        (table.rename({"rain": "Rain"}), "no column 'rain'"),
        (table.with_columns(wind=pl.lit("strong")), "'wind' holds 'strong' in row 0"),
    ):
        other.write_parquet(world / "airport" / "other.parquet")
        with pytest.raises(DataError, match=match):
            ServedTable(airport(world, "other.parquet"), COLUMNS)


def test_a_bad_value_far_down_in_a_file_is_told_at_the_start(world):
    far = table_of(world).with_columns(
        wind=pl.when(pl.int_range(pl.len()) == 777).then(pl.lit("far")).otherwise(pl.lit("1"))
    )
    far.write_csv(world / "airport" / "far.csv")
    with pytest.raises(DataError, match=r"far\.csv: the column 'wind' holds 'far' in row 777"):
        ServedTable(airport(world, "far.csv"), COLUMNS)
