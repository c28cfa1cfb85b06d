"""Heads: two classes, three, numbers; with an embedding and without; saved and loaded without pickle."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from skops.io import dump

from tacit.align.encoder import Inputs
from tacit.errors import DataError, LabelsError, TensorError, UsageError
from tacit.exchange.cells import Cells
from tacit.exchange.head import HEADS, fit_head, load_head


@pytest.fixture(name="codes", scope="module")
def _codes(made_up):
    z = made_up.score[:, None].astype(np.float32)
    return Cells.fit(z[: made_up.train], bits=5, smallest=0.02).code(z)


def rest(made_up, codes):
    return (None if codes is None else codes[made_up.train :]), made_up.inputs[slice(made_up.train, None)]


@pytest.mark.parametrize("kind", [*HEADS, LogisticRegression(max_iter=1000), lambda: LogisticRegression(max_iter=1000)])
def test_a_head_learns_from_the_embedding(kind, made_up, codes):
    head = fit_head(kind, codes, made_up.inputs, made_up.labels, train=made_up.train)
    found = head.predict(*rest(made_up, codes))
    assert found.shape == (600,)
    assert ((found >= 0) & (found <= 1)).all()
    assert roc_auc_score(made_up.labels[made_up.train :], found) > 0.85


@pytest.mark.parametrize("label", [0, 1])
def test_of_one_class_every_head_is_a_constant(label, made_up, codes, tmp_path):
    """scikit-learn's refuse one class; a training that ended so would tell a partner that picked the rows."""
    labels = np.full(made_up.train, label)
    labels[3:] = np.where(np.arange(made_up.train - 3) % 2, label, -1)  # the others have none
    head = fit_head(LogisticRegression(), codes, made_up.inputs, labels, train=made_up.train, classes=2)
    head.save(tmp_path)
    for one in (head, load_head(tmp_path)):
        found = one.predict(*rest(made_up, codes))
        assert len(set(found.tolist())) == 1
        assert abs(float(found[0]) - label) < 0.05


@pytest.mark.parametrize("bits", [1, 3, 5])
def test_a_network_makes_as_much_of_few_cells_beside_own_columns_as_trees_do(bits):
    draw, rows, train = np.random.default_rng(0), 6000, 3000
    z, noise = draw.normal(size=(rows, 1)), draw.normal(size=(rows, 8)).astype(np.float32)
    labels = (draw.random(rows) < 1 / (1 + np.exp(2 - 1.5 * z[:, 0]))).astype(int)
    own = Inputs(torch.zeros(rows, 0, dtype=torch.int64), torch.from_numpy(noise), ())
    codes, test = Cells.fit(z[:train], bits=bits, smallest=0.02).code(z), slice(train, None)
    trees, network = (
        roc_auc_score(labels[test], fit_head(kind, codes, own, labels, train=train).predict(codes[test], own[test]))
        for kind in HEADS
    )
    assert network > trees - 0.02


@pytest.mark.parametrize("kind", HEADS)
def test_three_classes_have_a_probability_each(kind, made_up, codes):
    head = fit_head(kind, codes, made_up.inputs, made_up.three, classes=3, train=made_up.train)
    found = head.predict(*rest(made_up, codes))
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-6)
    assert (found.argmax(axis=1) == made_up.three[made_up.train :]).mean() > 0.85


@pytest.mark.parametrize("kind", [*HEADS, LinearRegression()])
def test_numbers_come_in_their_own_unit(kind, made_up, codes):
    amounts = 1000 + 50 * made_up.score
    head = fit_head(kind, codes, made_up.inputs, amounts, classes=None, train=made_up.train)
    gap = head.predict(*rest(made_up, codes)) - amounts[made_up.train :]
    assert gap.var() < 0.3 * amounts.var()
    assert abs(gap.mean()) < 10


@pytest.mark.parametrize("few", [1, 2, 3, 4])
@pytest.mark.parametrize("classes", [2, 3, None])
@pytest.mark.parametrize("kind", HEADS)
def test_few_rows_with_a_label_are_no_error(kind, classes, few, made_up, codes):
    """A partner may have picked rows without labels and a few others: whether a model is fitted would tell of these."""
    labels = np.full(len(made_up.labels), -1 if classes else np.nan)
    labels[5 : 5 + few] = made_up.three[:few] % (classes or 9)
    head = fit_head(kind, codes, made_up.inputs, labels, classes=classes, train=made_up.train)
    assert np.isfinite(head.predict(*rest(made_up, codes))).all()


@pytest.mark.parametrize("kind", HEADS)
def test_the_fallback_has_no_embedding(kind, made_up):
    head = fit_head(kind, None, made_up.inputs, made_up.labels[: made_up.train])
    assert roc_auc_score(made_up.labels[made_up.train :], head.predict(*rest(made_up, None))) > 0.75
    with pytest.raises(TensorError, match="fitted for"):
        head.predict(np.zeros((600, 1), dtype=np.uint8), made_up.inputs[slice(made_up.train, None)])


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_without_own_columns(kind, made_up, codes):
    head = fit_head(kind, codes, None, made_up.labels[: made_up.train])
    found = head.predict(codes[made_up.train :], None)
    assert roc_auc_score(made_up.labels[made_up.train :], found) > 0.85


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("classes", [2, 3, None])
def test_saved_and_loaded_it_predicts_the_same(kind, classes, made_up, codes, tmp_path):
    labels = {2: made_up.labels, 3: made_up.three, None: made_up.score}[classes]
    head = fit_head(kind, codes, made_up.inputs, labels, classes=classes, train=made_up.train)
    head.save(tmp_path / "head")
    again = load_head(tmp_path / "head")
    assert (again.predict(codes, made_up.inputs) == head.predict(codes, made_up.inputs)).all()
    assert {path.suffix for path in (tmp_path / "head").iterdir()} <= {".txt", ".json", ".safetensors"}


@pytest.mark.parametrize("kind", HEADS)
def test_the_same_seed_gives_the_same_head(kind, made_up, codes):
    first, second = (fit_head(kind, codes, made_up.inputs, made_up.labels, seed=4) for _ in range(2))
    assert (first.predict(codes, made_up.inputs) == second.predict(codes, made_up.inputs)).all()


def test_rows_without_a_label_are_left_out(made_up, codes):
    labels = made_up.labels.copy()
    labels[::2] = -1
    head = fit_head("trees", codes, made_up.inputs, labels)
    assert roc_auc_score(made_up.labels[::2], head.predict(codes[::2], made_up.inputs[slice(None, None, 2)])) > 0.85


def test_wrong_use_is_named(made_up, codes, tmp_path):
    with pytest.raises(UsageError, match="no head 'forest'"):
        fit_head("forest", codes, None, made_up.labels)
    with pytest.raises(UsageError, match="no training row"):
        fit_head("trees", codes, None, np.full(len(codes), -1))
    with pytest.raises(LabelsError, match="from 0 to 1"):
        fit_head("trees", codes, None, made_up.three)
    with pytest.raises(TensorError, match="uint8"):
        fit_head("trees", codes.astype(np.int64), None, made_up.labels)
    with pytest.raises(DataError, match="no head"):
        load_head(tmp_path)
    with pytest.raises(UsageError, match="can't be written down"):
        fit_head(_Stranger(), codes, None, made_up.labels).save(tmp_path)
    assert not (tmp_path / "own.skops").exists()


class _Stranger(LogisticRegression):
    """An estimator of a package whose objects are not loaded."""


def test_an_estimator_is_kept_without_pickle_and_scores_the_same(made_up, codes, tmp_path):
    own = made_up.inputs[: len(codes)]
    fitted = fit_head(LogisticRegression(max_iter=1000), codes, own, made_up.labels)
    fitted.save(tmp_path / "head")
    again = load_head(tmp_path / "head")
    assert np.array_equal(again.predict(codes, own), fitted.predict(codes, own))
    assert not [path for path in (tmp_path / "head").rglob("*") if path.suffix in (".pkl", ".pickle", ".joblib")]


def test_a_file_that_holds_another_object_is_not_loaded(made_up, codes, tmp_path):
    fit_head(LogisticRegression(max_iter=1000), codes, None, made_up.labels).save(tmp_path)
    dump(_Stranger(), tmp_path / "own.skops")
    with pytest.raises(DataError, match="_Stranger"):
        load_head(tmp_path)
