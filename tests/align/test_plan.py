"""Every turn of a run, against a list that is written out by hand."""

import itertools

import pytest
import torch

from tacit.align.batches import Plan
from tacit.errors import UsageError

SMALL = [
    Plan(count, size, epochs, seed=7, test_share=share, test_rows=rows)
    for count, size, epochs, share, rows in itertools.product(
        (1, 2, 5, 8, 12), (1, 2, 3, 5), (1, 3), (0.0, 0.25, 0.5), (2, 100)
    )
    if size <= count - int(count * share)
]


def listed(plan):
    """The turns as a list of (turn, what, epoch, number of rows, last), with loops that skip nothing."""
    tested = min(int(plan.count * plan.test_share), plan.test_rows)
    trained = plan.count - int(plan.count * plan.test_share)
    sizes = [min(plan.batch_size, tested - start) for start in range(0, tested, plan.batch_size)]
    turns = []
    for epoch in range(plan.epochs):
        turns += [("train", epoch, plan.batch_size, False)] * (trained // plan.batch_size)
        turns += [("evaluate", epoch, size, place == len(sizes)) for place, size in enumerate(sizes, start=1)]
    return [(turn, *one) for turn, one in enumerate([*turns, ("done", plan.epochs, 0, False)])]


def rows(plan, what, epoch):
    return [task.rows.tolist() for task in plan.tasks() if (task.what, task.epoch) == (what, epoch)]


def shown(task):
    return task.turn, task.what, task.epoch, len(task.rows), task.last


@pytest.mark.parametrize("count", sorted({plan.count for plan in SMALL}))
def test_the_tasks_are_those_of_the_list(count):
    for plan in (plan for plan in SMALL if plan.count == count):
        tasks = list(plan.tasks())
        assert [shown(task) for task in tasks] == listed(plan)
        assert len(tasks) == plan.turns


@pytest.mark.parametrize("count", sorted({plan.count for plan in SMALL}))
def test_an_epoch_trains_on_a_row_once_at_most_and_never_on_one_for_testing(count):
    for plan in (plan for plan in SMALL if plan.count == count):
        for epoch in range(plan.epochs):
            trained = [row for batch in rows(plan, "train", epoch) for row in batch]
            assert len(set(trained)) == len(trained) == plan.steps * plan.batch_size
            assert set(trained) <= set(range(plan.train_count))
            tested = [row for batch in rows(plan, "evaluate", epoch) for row in batch]
            assert tested == list(range(plan.count))[plan.train_count :][: plan.test_rows]
            assert tested == plan.tested().tolist()


@pytest.mark.parametrize("count", sorted({plan.count for plan in SMALL}))
def test_a_run_that_goes_on_anywhere_does_what_is_left(count):
    for plan in (plan for plan in SMALL if plan.count == count):
        whole = list(plan.tasks())
        for first in range(plan.turns + 2):
            left = list(plan.tasks(first))
            assert [shown(task) for task in left] == [shown(task) for task in whole[first:]]
            assert all(torch.equal(one.rows, two.rows) for one, two in zip(left, whole[first:], strict=True))


def test_every_epoch_has_an_order_of_its_own_and_so_has_every_seed():
    orders = [rows(Plan(40, 4, 2, seed), "train", epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert len({str(order) for order in orders}) == 4
    assert orders[1] == rows(Plan(40, 4, 2, 1), "train", 1)


@pytest.mark.parametrize(("size", "share"), [(11, 0.0), (9, 0.2), (1, 1.0)])
def test_a_batch_that_does_not_fit_is_refused_with_what_to_change(size, share):
    trained = 10 - int(10 * share)
    with pytest.raises(UsageError, match=rf"= {size} does not fit the {trained} training rows of 10 .*contract\.toml"):
        Plan(10, size, 1, seed=1, test_share=share)
    if trained:
        assert Plan(10, trained, 1, seed=1, test_share=share).steps == 1


@pytest.mark.parametrize("steps", [3, 90, 300, 1000])
def test_the_points_at_which_something_may_be_decided_are_a_matter_of_the_plan_alone(steps):
    plan = Plan(steps * 2, 2, epochs=2, seed=0)
    found = [task.turn for task in plan.tasks() if task.what == "train" and plan.looked_back(task) == task.turn]
    apart = max(64, -(-steps // 4))
    expected = {epoch * steps + place for epoch in (0, 1) for place in range(0, steps, apart)}
    assert found == sorted(expected | {early for early in (0, 2, 8, 32) if early < steps})
