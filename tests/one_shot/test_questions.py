import numpy as np
import pytest
import torch

from tacit.align.encoder import Columns, Inputs
from tacit.audit.metrics.leak_auc import delong
from tacit.audit.metrics.reconstruction import relative_error
from tacit.contracts import Reconstruction
from tacit.errors import UsageError
from tacit.one_shot.questions import Questions, areas, codes_read, shares


def scores(rows=500, questions=20, seed=0):
    """Scores with ties, and answers that they tell something about."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((rows, questions)) < 0.3).astype(np.float32)
    score = np.round(rng.standard_normal((rows, questions)) + truth, 1).astype(np.float32)
    return score, truth


def test_areas_are_those_of_delong():
    score, truth = scores()
    value, error = areas(score, truth)
    area, variance = delong(torch.from_numpy(score.T), torch.from_numpy(truth.T), pairs=1.0)
    np.testing.assert_allclose(value, 2 * area.numpy() - 1, atol=1e-12)
    np.testing.assert_allclose(error, 2 * variance.sqrt().numpy(), atol=1e-12)


def test_what_an_embedding_adds_is_the_difference_and_its_error_knows_that_rows_are_the_same():
    score, truth = scores()
    before = (score + np.random.default_rng(1).standard_normal(score.shape) * 0.3).astype(np.float32)
    added, error = areas(score, truth, before)
    np.testing.assert_allclose(added, areas(score, truth)[0] - areas(before, truth)[0], atol=1e-12)
    apart = np.hypot(areas(score, truth)[1], areas(before, truth)[1])
    assert (error < 0.7 * apart).all()
    nothing, _ = areas(score, truth, score)
    np.testing.assert_allclose(nothing, 0.0, atol=1e-12)


def test_intervals_of_areas_cover_as_often_as_they_say():
    """Of 4000 questions whose scores tell nothing 95% hold 0; binomial, 6 standard errors: false alarms below 1e-8."""
    rng = np.random.default_rng(5)
    truth = (rng.random((400, 4000)) < 0.1).astype(np.float32)
    value, error = areas(rng.standard_normal((400, 4000)).astype(np.float32), truth)
    missed = np.mean(np.abs(value) > 1.96 * error)
    assert abs(missed - 0.05) < 6 * (0.05 * 0.95 / 4000) ** 0.5


def test_a_question_that_nobody_can_answer_is_nan():
    value, error = areas(np.zeros((10, 1), np.float32), np.zeros((10, 1), np.float32))
    assert np.isnan(value).all()
    assert np.isnan(error).all()


def test_shares_are_one_less_the_relative_error():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((300, 3)).astype(np.float32)
    belief = (0.5 * truth + 0.1).astype(np.float32)
    value, error = shares(belief, truth, np.array([0.1, 0.0, -0.2]))
    for place in range(3):
        mean = torch.tensor([[0.1, 0.0, -0.2][place]])
        guess = Reconstruction(torch.arange(300), torch.from_numpy(belief[:, [place]]), torch.ones(300).bool())
        told = relative_error(guess, torch.from_numpy(truth[:, [place]]), mean)
        assert value[place] == pytest.approx(1 - told.value, abs=1e-6)
        assert error[place] == pytest.approx((told.high - told.value) / 1.96, rel=0.01)


def test_codes_read_are_those_beyond_the_most_common():
    usual = np.arange(100) < 60
    assert codes_read(usual, usual)[0] == 0.0
    assert codes_read(np.ones(100, dtype=bool), usual)[0] == 1.0
    assert codes_read(np.arange(100) < 80, usual)[0] == pytest.approx(0.5)


def table(numeric, categorical, cardinality=5):
    return Inputs(
        torch.tensor(categorical)[:, None], torch.tensor(numeric, dtype=torch.float32)[:, None], (cardinality,)
    )


def test_tails_of_columns_with_few_values_hold_some_rows_and_at_most_half():
    rng = np.random.default_rng(0)
    for numeric in (rng.random(2000), rng.random(2000) < 0.02, rng.random(2000) > 0.02, rng.random(2000) < 0.3):
        made = table(numeric.astype(np.float32), rng.integers(5, size=2000))
        questions = Questions.of(made, Columns(("town",), ("x",)), np.arange(2000), 2000)
        answers = questions.answers(np.arange(2000))
        assert questions.tails
        for place in range(len(questions.tails)):
            assert 0.01 < answers[:, 1 + place].mean() <= 0.5


def test_tails_are_wider_where_few_rows_are_judged():
    made = table(np.random.default_rng(0).random(2000), np.zeros(2000, dtype=int))
    for judged, share in ((20_000, 0.05), (1000, 0.26), (300, 0.5)):
        questions = Questions.of(made, Columns(("town",), ("x",)), np.arange(2000), judged)
        assert questions.answers(np.arange(2000))[:, 1:].mean(0) == pytest.approx([share, share], abs=0.002)


def test_rare_categories_are_asked_for_together():
    codes = np.repeat(np.arange(5), [1000, 900, 95, 3, 2])
    made = table(np.zeros(2000), codes)
    questions = Questions.of(made, Columns(("town",), ("x",)), np.arange(2000), 2000)
    assert questions.numbers == ()
    assert [questions.said(place) for place in range(len(questions))] == [
        ("town", "category 0"),
        ("town", "category 1"),
        ("town", "category 2"),
        ("town", "rare categories"),
    ]
    assert questions.answers(np.arange(2000)).sum(0).tolist() == [1000, 900, 95, 5]


def test_columns_of_one_name_belong_together():
    made = table(np.arange(2000) % 7, np.arange(2000) % 5)
    questions = Questions.of(made, Columns(("x",), ("x",)), np.arange(2000), 2000)
    assert set(questions.units.tolist()) == {0}


def test_names_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="names are of 2 numbers"):
        Questions.of(table(np.zeros(9), np.zeros(9, dtype=int)), Columns(("a",), ("b", "c")), np.arange(9), 9)
