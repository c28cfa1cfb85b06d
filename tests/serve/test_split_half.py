"""The halves of a split training: the same bytes for a row every time, protected as at the end of the training."""

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import save_file

from tacit.company.folder import Folder
from tacit.errors import DataError, ProtocolError, UsageError
from tacit.same_bits import in_blocks
from tacit.serve.halves import load_embedder, load_scorer
from tacit.split.scoring import _RowNoise


@pytest.fixture(name="where")
def _where(split):
    return {name: folder.run_folder(folder.contract) for name, folder in split.items()}


def test_a_row_has_noise_of_its_own_and_the_same_every_time(split):
    half, table = load_embedder(split["airport"], "test"), pl.read_parquet(split["airport"].data)
    with torch.no_grad():  # weights by which every row is another one: a training so small may end with none alive
        for values in half.party.bottom.parameters():
            values.fill_(0.5 if values.ndim > 1 else 5.0)
    whole = half.embed(table)
    assert whole.shape == (70, half.width)
    assert all(np.array_equal(half.embed(table[row : row + 1])[0], whole[row]) for row in (0, 33, 69))
    clean = half.party.bottom(*_inputs(half, table)).detach().numpy()
    noise = whole.view(np.float32) - clean
    assert 0.5 < noise.std() / (8.0 / (4 * 4.0) ** 0.5) < 2, "of the strength that was trained with"
    assert len(np.unique(noise.round(4), axis=0)) == 70


def _inputs(half, table):
    return half.encoder.encode(table).tensors


def test_scores_are_probabilities_and_the_same_alone(split):
    embedder, scorer = load_embedder(split["airport"], "test"), load_scorer(split["airline"], "test")
    assert scorer.versions == {"airport": embedder.version}
    assert (scorer.outputs, scorer.fallback) == (("score",), False)
    embeddings = embedder.embed(pl.read_parquet(split["airport"].data))
    rows = pl.DataFrame({"id": range(70)})
    whole = scorer.score(rows, {"airport": embeddings})
    assert whole.shape == (70, 1)
    assert ((whole > 0) & (whole < 1)).all()
    alone = [scorer.score(rows[row : row + 1], {"airport": embeddings[row : row + 1]})[0] for row in range(70)]
    assert np.array_equal(alone, whole)
    with pytest.raises(UsageError, match="no fallback"):
        scorer.score(rows, None)
    wrong = embeddings.copy()
    wrong[3].view(np.float32)[0] = np.nan
    with pytest.raises(ProtocolError, match="not finite"):
        scorer.score(rows, {"airport": wrong})


def test_what_is_sent_is_the_protected_embedding_and_what_is_scored_is_what_came(split):
    embedder, scorer = load_embedder(split["airport"], "test"), load_scorer(split["airline"], "test")
    assert embedder.width == scorer.widths["airport"] == 4 * 4
    table, rows = pl.read_parquet(split["airport"].data), pl.DataFrame({"id": range(70)})
    sent = embedder.embed(table)
    assert sent.shape == (70, 16)
    with torch.no_grad():
        clean = in_blocks(embedder.party.bottom.eval(), _inputs(embedder, table))
    exact = embedder.party.shield.protected(clean, _RowNoise(clean, embedder.secret)).numpy()
    assert np.array_equal(sent.view(np.float32), exact)
    assert not np.array_equal(exact, clean), "under noise"
    whole = scorer.score(rows, {"airport": sent})
    top, values = scorer.top.eval(), torch.from_numpy(sent.view(np.float32))
    with torch.no_grad():
        logits = in_blocks(top, [values, *_nothing(70)]).double()
    assert np.array_equal(whole, in_blocks(torch.sigmoid, [logits.reshape(70, 1)]).numpy())
    wrong = sent.copy()
    wrong[3].view(np.float32)[1] = np.inf
    with pytest.raises(ProtocolError, match="not finite"):
        scorer.score(rows, {"airport": wrong})


def _nothing(count):
    """The inputs of a party without columns."""
    return torch.empty(count, 0, dtype=torch.int64), torch.empty(count, 0)


def test_a_protection_that_looks_at_a_whole_batch_is_refused(split):
    settings = split["airport"].path / "party.toml"
    before = settings.read_text()
    settings.write_text(before.replace("snr = 4.0, clip = 8.0", "snr = 4.0"))
    try:
        with pytest.raises(UsageError, match="from a whole batch"):
            load_embedder(Folder(split["airport"].path), "test")
    finally:
        settings.write_text(before)


def test_other_weights_and_missing_ones_are_said(split, where):
    path = where["airline"] / "model.safetensors"
    before = path.read_bytes()
    try:
        save_file({"other": torch.zeros(1)}, path)
        with pytest.raises(DataError, match="does not fit the model"):
            load_scorer(split["airline"], "test")
        path.unlink()
        with pytest.raises(UsageError, match="the training is not over"):
            load_scorer(split["airline"], "test")
    finally:
        path.write_bytes(before)
