import numpy as np
import pytest
import torch

from tacit.align.encoder import Columns, Inputs
from tacit.audit.metrics.leak_auc import delong
from tacit.audit.metrics.reconstruction import relative_error
from tacit.contracts import Reconstruction
from tacit.errors import UsageError
from tacit.exchange.questions import Questions, areas, codes_read, shares

COLUMNS = Columns(("town",), ("x",))


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


def test_areas_by_group_are_those_by_row():
    rng = np.random.default_rng(2)
    group, (_, truth) = rng.integers(7, size=500) * 3, scores()
    truth[:, 0] = 0.0  # a class is lacking
    score = np.round(rng.standard_normal((19, truth.shape[1])), 1).astype(np.float32)[group]  # groups may have ties
    for mine, reference in zip(areas(score, truth, group=group), areas(score, truth), strict=True):
        np.testing.assert_allclose(mine, reference, atol=1e-12)


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
        questions = Questions.of(made, COLUMNS, np.arange(2000), 2000)
        answers = questions.answers(np.arange(2000))
        assert questions.tails
        for place in range(len(questions.tails)):
            assert 0.01 < answers[:, 1 + place].mean() <= 0.5


def test_tails_are_wider_where_few_rows_are_judged():
    made = table(np.random.default_rng(0).random(2000), np.zeros(2000, dtype=int))
    for judged, share in ((20_000, 0.05), (1000, 0.26), (300, 0.5)):
        questions = Questions.of(made, COLUMNS, np.arange(2000), judged)
        assert questions.answers(np.arange(2000))[:, 1:3].mean(0) == pytest.approx([share, share], abs=0.002)


def test_bands_lie_between_the_tails_and_say_where():
    made = table(np.random.default_rng(0).random(2000), np.zeros(2000, dtype=int))
    for judged, words in (
        (20_000, ["between 5% and 28%", "between 28% and 50%", "between 50% and 72%", "between 72% and 95%"]),
        (1000, ["between 26% and 74%"]),
        (300, []),
    ):
        questions = Questions.of(made, COLUMNS, np.arange(2000), judged)
        asked = [questions.said(place) for place in range(3, len(questions))]
        assert [name for name, _ in asked] == ["x"] * len(words)
        assert [question for _, question in asked] == words
        assert (questions.answers(np.arange(2000))[:, 1:].sum(1) <= 1).all(), "no number is in two of them"


def test_each_value_of_a_number_is_a_band_where_there_are_few():
    numbers = np.repeat([0.0, 1.0, 2.0, 3.0], [300, 700, 800, 200])
    questions = Questions.of(table(numbers, np.zeros(2000, dtype=int)), COLUMNS, np.arange(2000), 20_000)
    answers = questions.answers(np.arange(2000))[:, 1:]
    found = {frozenset(numbers[column > 0.5].tolist()) for column in answers.T}
    assert found == {frozenset({0.0}), frozenset({3.0}), frozenset({1.0}), frozenset({2.0})}


def test_values_that_an_embedding_tells_apart_are_asked_for_whichever_they_are():
    """Two bands of a number that it marks, by a mean that is higher or by one that only lies elsewhere."""
    rng = np.random.default_rng(0)
    x = rng.random(4000)
    marked = ((x > 0.2) & (x < 0.3)) | ((x > 0.55) & (x < 0.6))
    for z in (rng.random(4000) + marked, np.where(marked, 0.0, rng.choice([-1, 1], 4000)) + 0.1 * rng.random(4000)):
        made = table(x, np.zeros(4000, dtype=int))
        questions = Questions.of(made, COLUMNS, np.arange(2000), 2000, z=z[:, None])
        places = [place for place in range(len(questions)) if questions.said(place)[1] == "values told apart"]
        answers = questions.answers(np.arange(2000, 4000))[:, places] > 0.5
        wrong = [min((column != marked[2000:]).mean(), (column == marked[2000:]).mean()) for column in answers.T]
        assert min(wrong) < 0.02
        assert len(places) <= 4


def test_where_there_are_many_columns_each_is_asked_less():
    rng = np.random.default_rng(0)
    made = Inputs(torch.zeros(1000, 0, dtype=torch.int64), torch.from_numpy(rng.random((1000, 300), np.float32)), ())
    columns = Columns((), tuple(f"x{place}" for place in range(300)))
    questions = Questions.of(made, columns, np.arange(1000), 40_000, z=rng.random((1000, 1)))
    assert len(questions.sets) <= 600


def test_rare_categories_are_asked_for_together():
    codes = np.repeat(np.arange(5), [1000, 900, 95, 3, 2])
    made = table(np.zeros(2000), codes)
    questions = Questions.of(made, COLUMNS, np.arange(2000), 2000)
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
