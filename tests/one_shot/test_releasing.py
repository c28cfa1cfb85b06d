"""What leaves of an embedding: the first form that holds the limit, and never less than a label-free one is worth."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tacit.align.encoder import Columns, Inputs
from tacit.errors import UsageError
from tacit.one_shot import releasing
from tacit.one_shot.forms import Coding, Form, shown
from tacit.one_shot.learn.own import own
from tacit.one_shot.releasing import Home, above_floor, release

COIN = SimpleNamespace(classes=2, a=0.9, b=0.1)


class Beside:
    """A learner that gives four columns of six away and learns nothing of labels."""

    def fit(self, rows, labels):
        return self

    def transform(self, rows):
        first, second = (np.searchsorted(np.linspace(-1.5, 1.5, 15), rows[:, place]) for place in (2, 4))
        return (16.0 * first + second)[:, None]


class First(Beside):
    """A learner that sends what labels hang on."""

    def transform(self, rows):
        return rows[:, :1]


@pytest.fixture(scope="module", name="world")
def _world():
    """Three pairs of columns that say the same; labels hang on the first, which is the most alike."""
    draw = np.random.default_rng(5)
    factors = draw.normal(size=(1000, 3)).repeat(2, axis=1)
    numbers = factors + draw.normal(size=(1000, 6)) * np.array([0.05, 0.05, 0.3, 0.3, 0.3, 0.3])
    numbers = (numbers / numbers.std(0)).astype(np.float32)
    sent = np.where(draw.random(800) < 0.9, factors[:800, 0] > 0, factors[:800, 0] <= 0).astype(np.uint8)
    rows = Inputs(torch.zeros(1000, 0, dtype=torch.int64), torch.from_numpy(numbers), ())
    return Home(rows, rows, Columns((), tuple("abcdef")), 800, 1, bytes(32)), sent


def learnt(home, sent, learner):
    made = own(learner)
    return made, release(made.fit(home.shown[:800], sent, COIN, 1), Form(1), home)


def test_what_learnt_nothing_gives_way_to_a_label_free_embedding_that_tells_no_more(world):
    home, sent = world
    made, first = learnt(home, sent, Beside())
    found = above_floor(first, made, sent, COIN, home)
    name = found.bottom.name
    assert name in {"pca", "waist", "clusters"}
    assert found.audit.numbers < first.audit.numbers - 0.1
    assert f"{name} of 1 number" in found.why
    assert found.as_dict()["bottom"] == name


def test_what_learnt_more_stays(world):
    home, sent = world
    made, first = learnt(home, sent, First())
    assert above_floor(first, made, sent, COIN, home) is first


def test_without_an_attack_there_is_nothing_to_compare(world):
    home, sent = world
    made, first = learnt(replace(home, attacked=False), sent, First())
    assert first.audit is None
    assert above_floor(first, made, sent, COIN, home) is first


def test_forms_tell_less_and_less():
    forms = list(Form(8, 256, 0.0).weaker())
    assert [form.width for form in forms[:4]] == [8, 4, 2, 1]
    assert [form.ranks for form in forms[4:7]] == [32, 4, 4]
    assert [form.noise for form in forms[-3:]] == [1.0, 2.0, 4.0]
    assert list(Form(1, 4, 4.0).weaker()) == [Form(1, 4, 4.0)]


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_coding_codes_any_row_alike(noise):
    z = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    coding = Coding.fit(z[:200], Form(2, 16, noise), width=4, secret=bytes(32), digest="a")
    codes = coding.codes(z, bytes(32))
    assert codes.shape == (300, 4)
    assert (codes[:, 2:] == 0).all()
    assert codes.max() == 15
    assert np.array_equal(coding.codes(z[250:260], bytes(32)), codes[250:260])
    assert coding.state()["form"] == {"width": 2, "ranks": 16, "noise": noise}


def test_withheld_columns_are_not_shown():
    rows = Inputs(torch.arange(4).reshape(2, 2), torch.arange(6.0).reshape(2, 3), (4, 4))
    columns = Columns(("port", "day"), ("wind", "rain"), ("rain",))
    found = shown(rows, columns, ["day", "rain"])
    assert found.categorical.tolist() == [[0], [2]]
    assert found.numeric.tolist() == [[0.0], [3.0]]
    assert found.cardinalities == (4,)
    with pytest.raises(UsageError, match="mind"):
        shown(rows, columns, ["mind"])
    with pytest.raises(UsageError, match="no column is left"):
        shown(rows, columns, columns.names)


def test_of_many_rows_label_free_embeddings_are_compared_on_some(world, monkeypatch):
    """The same is decided, and what leaves is of all rows."""
    home, sent = world
    monkeypatch.setattr(releasing, "_MANY", 900)
    some, places = home.some(900)
    assert len(some.rows) == len(places) == 900
    assert torch.equal(some.rows.numeric, home.rows.numeric[torch.from_numpy(places)])
    assert some.train == (places < home.train).sum()
    made, first = learnt(home, sent, Beside())
    found = above_floor(first, made, sent, COIN, home)
    assert found.bottom.name in {"pca", "waist", "clusters"}
    assert len(found.codes) == 1000
    made, first = learnt(home, sent, First())
    assert above_floor(first, made, sent, COIN, home) is first
