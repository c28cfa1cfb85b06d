"""What each mechanism promises over many visits, and what a summary makes of it."""

import math

import pytest

from tacit.contracts import Event
from tacit.errors import UsageError
from tacit.ledger.ledger import Ledger
from tacit.ledger.summary import auc_of, embedding_sum_kl, noisy


def chain(*names):
    return Event("chain", parts=tuple(Event(name) for name in names))


@pytest.mark.parametrize(
    ("event", "holds"),
    [
        (Event("none"), "nothing"),
        (Event("max_norm"), "nothing"),
        (Event("clip", {"norm": 1.0}), "nothing"),
        (Event("iso"), "noise"),
        (Event("marvell"), "noise"),
        (Event("matched"), "noise"),
        (chain("clip", "marvell"), "noise"),
        (chain("clip", "max_norm"), "nothing"),
        (Event("chain", parts=(Event("clip"), chain("none", "iso"))), "noise"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.mechanism,
)
def test_what_a_mechanism_promises(event, holds):
    assert noisy(event) is (holds == "noise")


@pytest.mark.parametrize("event", [Event("mine"), chain("clip", "mine"), Event("gaussian", {"std": 1.0, "clip": 1.0})])
def test_an_unknown_mechanism_raises(event):
    with pytest.raises(UsageError, match=r"there is no protection '(mine|gaussian)'"):
        noisy(event)


def test_embeddings_are_bounded_by_noise_on_clipped_rows_alone():
    assert embedding_sum_kl(Event("gaussian", {"std": 4.0, "clip": 0.5})) == pytest.approx(1 / 16)
    both = Event("chain", parts=(Event("adversarial"), Event("gaussian", {"std": 4.0, "clip": 0.5})))
    assert embedding_sum_kl(both) == pytest.approx(1 / 16)
    assert embedding_sum_kl(Event("gaussian", {"std": 4.0})) is None
    assert embedding_sum_kl(Event("gaussian", {"snr": 4.0, "clip": 1.0})) is None
    assert embedding_sum_kl(Event("distance_correlation", {"weight": 0.1})) is None
    assert embedding_sum_kl(Event("none")) == math.inf
    with pytest.raises(UsageError, match="'matched'"):
        embedding_sum_kl(Event("matched"))


@pytest.mark.parametrize(
    ("event", "figures", "worst"),
    [
        (Event("none"), {}, 1.0),
        (Event("max_norm"), {"untouched_rows": 1.0}, 1.0),
        (Event("marvell"), {"untouched_rows": 3.0}, 1.0),
        (Event("mine"), {"untouched_rows": 0.0}, None),
        (Event("marvell"), {"untouched_rows": 0.0}, None),
        (Event("matched"), {"row_kl": 0.04}, auc_of(0.12)),
    ],
    ids=["none", "max_norm", "untouched", "unknown", "no bound", "bounded"],
)
def test_the_summary_says_what_the_mechanism_is_worth(made, where, event, figures, worst):
    with Ledger(where) as ledger:
        book = ledger.begin(made.SMALL, None)
        made.answer_all(book, made.SMALL, event=event, figures=figures)
        found = ledger.summary().worst_case
    assert found == (None if worst is None else pytest.approx(worst))


def test_two_runs_add_up_for_the_examples_that_are_in_both(made, where):
    with Ledger(where) as ledger:
        for name, offset in (("one", 0), ("two", 180), ("three", 1000)):
            run = made.other(name)
            book = ledger.begin(run, made.keys(run.count, offset))
            made.answer_all(book, run)
        found = ledger.summary()
        each = [line.sum_kl for line in found.each]
        overlap = [row for row in range(180, 203) if ledger.runs()[0].visits()[row] and row - 180 < 163]
        assert not overlap, "the last rows of the first run are its test rows: nobody is in both"
        assert found.worst_case == pytest.approx(auc_of(max(each)))
        run = made.other("four")
        book = ledger.begin(run, made.keys(run.count, 100))
        made.answer_all(book, run)
        assert ledger.summary().worst_case == pytest.approx(auc_of(2 * each[0]))


def test_a_feature_partys_figure_is_about_any_two_embeddings(made, where):
    run = made.other("f", role="features")
    with Ledger(where) as ledger:
        book = ledger.begin(run, None)
        made.answer_all(book, run, event=Event("gaussian", {"std": 8.0, "clip": 0.5}))
        assert ledger.summary().worst_case == pytest.approx(auc_of(3 / 64))
