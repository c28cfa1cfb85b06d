"""A half of a finished run gives a row the same bytes and the same score, whenever and with whomever it comes."""

import json

import numpy as np
import polars as pl
import pytest

from tacit.company.aligned import aligned
from tacit.company.overrides import overrides
from tacit.errors import DataError, LimitError, StorageError, UsageError
from tacit.report import seals
from tacit.report.run_files import OVERRIDES
from tacit.serve.halves import load_embedder, load_scorer, pin


def test_an_embedding_is_what_was_sent_in_training_and_the_same_alone(exchanged):
    """Noise hangs on the last bit of an embedding: that a row alone has the same bytes is no matter of course."""
    folder = exchanged.folder("airport")
    half, table = load_embedder(folder, "test"), pl.read_parquet(folder.data)
    whole = half.embed(table)
    assert whole.shape == (900, half.width)
    sent = np.load(exchanged.run("airport") / "release" / "codes.npy")
    assert np.array_equal(whole[aligned(exchanged.folder("airport")).rows], sent)
    some = [3, 500, 77]
    assert all(np.array_equal(half.embed(table[row : row + 1])[0], whole[row]) for row in some)
    assert np.array_equal(half.embed(table[some]), whole[some])
    assert half.embed(table[:0]).shape == (0, half.width)


def test_scores_of_one_row_are_those_of_the_table(exchanged):
    half = load_scorer(exchanged.folder("airline"), "test")
    table, draw = pl.read_parquet(exchanged.folder("airline").data), np.random.default_rng(0)
    embeddings = draw.integers(0, 256, (900, half.widths["airport"])).astype(np.uint8)
    for given in ({"airport": embeddings}, None):
        whole = half.score(table, given)
        assert whole.shape == (900, 1)
        for row in (0, 450):
            alone = None if given is None else {"airport": embeddings[row : row + 1]}
            assert np.array_equal(half.score(table[row : row + 1], alone)[0], whole[row])


def test_both_sides_have_one_version(exchanged):
    embedder = load_embedder(exchanged.folder("airport"), "test")
    scorer = load_scorer(exchanged.folder("airline"), "test")
    assert scorer.versions == {"airport": embedder.version}
    assert embedder.digest != scorer.digest


def test_rows_beyond_what_was_trained_on_are_clipped_and_unknown_categories_pass(exchanged):
    half = load_embedder(exchanged.folder("airport"), "test")
    far = pl.DataFrame({"port": ["nowhere", None], "wind": [1e9, -1e9], "rain": [0.0, None]})
    assert half.embed(far).shape == (2, half.width)


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ({"port": ["p1"], "wind": [1.0]}, "no column 'rain'"),
        ({"port": ["p1"], "wind": [1.0], "rain": ["wet"]}, "'rain' holds 'wet' in row 0"),
    ],
)
def test_a_missing_or_changed_column_is_named(exchanged, table, match):
    half = load_embedder(exchanged.folder("airport"), "test")
    with pytest.raises(DataError, match=match):
        half.embed(pl.DataFrame(table))


def test_roles_unfinished_runs_and_other_columns_are_refused(exchanged):
    with pytest.raises(UsageError, match="not 'label'"):
        load_scorer(exchanged.folder("airport"), "test")
    done = exchanged.run("airport") / "delivered"
    said = done.read_bytes()
    done.unlink()
    try:
        with pytest.raises(UsageError, match="the training is not over"):
            load_embedder(exchanged.folder("airport"), "test")
    finally:
        done.write_bytes(said)
    settings = exchanged.path / "airport" / "party.toml"
    before = settings.read_text()
    settings.write_text(before.replace('numeric = ["wind", "rain"]', 'numeric = ["wind"]'))
    try:
        with pytest.raises(UsageError, match="names other columns"):
            load_embedder(exchanged.folder("airport"), "test")
    finally:
        settings.write_text(before)


def test_inputs_that_were_made_again_are_noticed(exchanged):
    manifest = exchanged.run("airport") / "inputs" / "manifest.json"
    before = manifest.read_bytes()
    manifest.write_text(json.dumps({**json.loads(before), "digest": "00"}))
    try:
        with pytest.raises(StorageError, match="of another table"):
            load_embedder(exchanged.folder("airport"), "test")
    finally:
        manifest.write_bytes(before)


def test_a_broken_limit_takes_somebody_who_answers_for_it(exchanged):
    report = exchanged.run("airport") / "report.json.seal"
    before, record = report.read_bytes(), exchanged.run("airport") / OVERRIDES
    report.write_text("0")
    try:
        with pytest.raises(LimitError, match="not let out"):
            load_embedder(exchanged.folder("airport"), "prediction")
        assert not seals.read(record)
        load_embedder(exchanged.folder("airport"), "prediction", override="Ada", reason="a trial")
        assert [(one.who, one.what) for one in overrides(exchanged.run("airport"))] == [("Ada", "prediction")]
    finally:
        report.write_bytes(before)


def test_a_half_that_becomes_another_one_is_refused(tmp_path):
    pin(tmp_path, "airport", "11")
    pin(tmp_path, "airport", "11")
    pin(tmp_path, "airline", "22")
    with pytest.raises(DataError, match="the half of airport is another one"):
        pin(tmp_path, "airport", "33")
