"""A budget over all runs: what former ones have used is not there for the next."""

import pytest

from tacit.errors import UsageError
from tacit.ledger.ledger import Ledger, check_budget
from tacit.ledger.summary import auc_of


@pytest.fixture
def spent(made, full):
    """What the finished run of `full` has used of each of its examples."""
    return made.SMALL.epochs * made.FIGURES["row_kl"]


def check(ledger, run, keys, budget):
    """Hold a run against the budget as a start does; what former ones have used of each row."""
    used = ledger.spent_by(keys, but=run)
    check_budget(budget, used, run)
    return used


def test_a_new_run_gets_what_is_left(made, full, spent):
    with Ledger(full) as ledger:
        used = check(ledger, made.other("next"), made.keys(203), 0.7)
    assert used.max() == pytest.approx(spent)
    assert 0.5 < auc_of(used.max()) < 0.7


def test_other_examples_and_the_run_itself_have_all_of_it(made, full):
    ledger = Ledger(full)
    for run, keys in (
        (made.other("next"), made.keys(203, 500)),
        (made.other("next"), made.keys(203)[163:]),  # its test rows: nothing was ever said of them
        (made.other("next"), None),
        (made.SMALL, made.keys(203)),
    ):
        assert check(ledger, run, keys, 0.6).max(initial=0.0) == 0.0


def test_runs_add_up_until_nothing_is_left_and_the_error_counts_the_rows(made, full, spent):
    budget = auc_of(1.5 * spent)
    with Ledger(full) as ledger:
        run = made.other("second")
        assert check(ledger, run, made.keys(203, 100), budget).max() == pytest.approx(spent)
        book = ledger.begin(run, made.keys(203, 100))
        made.answer_all(book, run)
        both = sum(row in made.by_hand(made.SMALL) and row - 100 in made.by_hand(run) for row in range(300))
        with pytest.raises(UsageError, match=rf"used it up for {both} of 203 rows of the run 'third'"):
            check(ledger, made.other("third"), made.keys(203, 50), budget)


def test_a_run_that_has_no_bound_for_a_row_has_used_up_everything(made, where):
    with Ledger(where) as ledger:
        made.answer_all(ledger.begin(made.SMALL, made.keys(203)), made.SMALL, turns=2, figures={"power": 1.5})
        with pytest.raises(UsageError, match="for 32 of 203 rows"):
            check(ledger, made.other("next"), made.keys(203), 0.9)
        check(ledger, made.other("next"), made.keys(203), 1.0)  # which is no budget


@pytest.mark.parametrize("budget", [0.5, 0.4, 1.1])
def test_a_budget_is_a_leak_auc(made, where, budget):
    with pytest.raises(UsageError, match=r"leak AUC above 0\.5"):
        check(Ledger(where), made.SMALL, None, budget)


def test_a_budget_is_told_in_the_summary(made, where):
    with Ledger(where) as ledger:
        for budget in (0.7, 0.7, None, 0.65):
            ledger.begin(made.SMALL, None, budget=budget)
            assert ledger.summary().budget == budget
    assert Ledger(where).summary().budget == 0.65
    assert Ledger(where).check().records == 4, "it is written down when it changes"
