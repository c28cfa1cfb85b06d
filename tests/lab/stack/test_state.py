"""A stack that was restored goes on bit for bit, and a replica that runs away is the only one that does."""

import copy

import pytest
import torch

from tacit.errors import UsageError
from tacit.lab.stack.bounds import LIMIT
from tacit.lab.stack.graph import tensors_in
from tacit.lab.stack.training import Stack
from tacit.lab.sweeping.settings import Setting
from tacit.wire.checkpoint import load, save

ALL = (
    Setting("none"),
    Setting("iso", "t", 1.0),
    Setting("marvell", "scale", 1.0),
    Setting("marvell", "scale", 4.0, seed=3),
    Setting("max_norm", seed=3),
    Setting("matched", "leak_auc", 0.6),
    Setting("randomized_response", "rate", 0.2),
    Setting("label_distance_correlation", "weight", 0.5, seed=3),
)
KEPT = {"batch_size": 128, "last": 2, "follow": 20, "visits": 2}


def same(left, right):
    """Every tensor of two trees, bit for bit; NaN equals NaN."""
    pairs = list(zip(tensors_in(left), tensors_in(right), strict=True))
    assert pairs
    return all(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in pairs)


@pytest.fixture(scope="module")
def at_once(table, network):
    """Six steps, the fourth to sixth in a second call."""
    stack = Stack(table, network, ALL, **KEPT)
    plan = stack.plan(0)
    stack.advance(plan[:, :3])
    return stack, stack.advance(plan[:, 3:6])


@pytest.mark.parametrize("through_a_file", [False, True])
def test_three_steps_and_three_are_six(table, network, at_once, through_a_file, tmp_path):
    first = Stack(table, network, ALL, **KEPT)
    plan = first.plan(0)
    first.advance(plan[:, :3])
    if through_a_file:
        save(tmp_path / "state", first.state())
        tree = load(tmp_path / "state").state
    else:
        tree = first.state()
    second = Stack(table, network, ALL, **KEPT)
    second.restore(tree)
    assert same(second.state(), first.state())
    steps = second.advance(plan[:, 3:6])
    whole, wanted = at_once
    assert same(steps, wanted)
    assert same(second.state(), whole.state())
    for replica in range(len(ALL)):
        for kept in ("batches", "visits"):
            mine, theirs = (getattr(each.transcript(replica), kept)() for each in (second, whole))
            assert torch.equal(mine.view.gradient, theirs.view.gradient)
            assert torch.equal(mine.view.rows, theirs.view.rows)
    assert not same(first.state(), whole.state()), "the second stack trained on copies"


def test_pictures_go_on_as_well(pictures, small_conv):
    settings = (Setting("none"), Setting("matched", "leak_auc", 0.6), Setting("marvell", "scale", 1.0, seed=1))
    whole, first, second = (Stack(pictures, small_conv, settings, batch_size=32, last=1) for _ in range(3))
    plan = whole.plan(0)
    whole.advance(plan)
    first.advance(plan[:, :3])
    second.restore(copy.deepcopy(first.state()))
    second.advance(plan[:, 3:])
    assert same(second.state(), whole.state())


def test_a_state_before_the_first_step_is_one_too(table, network, at_once):
    fresh, other = (Stack(table, network, ALL, **KEPT) for _ in range(2))
    other.advance(other.plan(0)[:, :2])
    other.restore(fresh.state())
    plan = other.plan(0)
    other.advance(plan[:, :3])
    assert same(other.advance(plan[:, 3:6]), at_once[1])


def test_another_stacks_state_is_refused(table, network):
    stack = Stack(table, network, ALL[:2], batch_size=128)
    for settings in (ALL[:3], (ALL[0], ALL[0])):
        with pytest.raises(UsageError, match="another stack"):
            stack.restore(Stack(table, network, settings, batch_size=128).state())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_a_stack_is_restored_before_its_first_step_and_goes_on(table, network):
    whole, first, second = (Stack(table, network, ALL, **KEPT, device="cuda") for _ in range(3))
    plan = whole.plan(0)
    whole.advance(plan[:, :4])
    wanted = whole.advance(plan[:, 4:])
    first.advance(plan[:, :4])
    second.restore(first.state())
    found = second.advance(plan[:, 4:])
    assert torch.allclose(found.loss, wanted.loss, atol=1e-4)
    with pytest.raises(UsageError, match="before its first step"):
        second.restore(first.state())


# --- running away ----------------------------------------------------------------------------------------------------


def poisoned(rows, network, replica, name, value, *, settings=ALL, device="cpu"):
    """Two steps, then a weight of one replica is what it must not be, then six steps more."""
    stack = Stack(rows, network, settings, **{**KEPT, "batch_size": len(rows) // 8}, device=device)
    plan = stack.plan(0)
    before = stack.advance(plan[:, :2])
    with torch.no_grad():
        if replica is not None:
            half, _, weight = name.partition(" ")
            where = getattr(stack, half)
            (where.table.weight[:, replica] if weight == "table" else where.weights[weight][replica]).fill_(value)
    return stack, before, stack.advance(plan[:, 2:])


@pytest.fixture(scope="module")
def healthy(table, network):
    return poisoned(table, network, None, "", 0.0)


POISONS = (("bottom table", torch.nan), ("bottom layer2.linear.weight", 1e30), ("top logit.weight", 100 * LIMIT))


@pytest.mark.parametrize(
    ("replica", "name", "value"),
    [
        *((place, "top logit.weight", torch.inf) for place in range(len(ALL))),
        *((place, *poison) for place in (0, 3, 5) for poison in POISONS),
    ],
)
def test_a_replica_that_runs_away_is_the_only_one(table, network, healthy, replica, name, value):
    stack, before, after = poisoned(table, network, replica, name, value)
    right, _, wanted = healthy
    assert bool((before.valid == 1).all())
    others = [place for place in range(len(ALL)) if place != replica]
    assert after.valid[:, replica].tolist() == [0] * 6
    assert bool((after.valid[:, others] == 1).all())
    assert bool(after.loss[:, replica].isnan().all())
    for key, found in after.auc.items():
        assert bool(found[:, replica].isnan().all())
        assert torch.equal(found[:, others].nan_to_num(7.0), wanted.auc[key][:, others].nan_to_num(7.0))
    for figure in ("loss", "power", "untouched_rows", "stateless"):
        assert torch.equal(getattr(after, figure)[:, others], getattr(wanted, figure)[:, others])
    for place in others:
        mine, theirs = (half.state_dict() for each in (stack, right) for half in each.models(place)[:1])
        assert same(mine, theirs)
        assert torch.equal(
            stack.transcript(place).visits().view.gradient, right.transcript(place).visits().view.gradient
        )


def test_attacks_that_decompose_get_over_it(table, network):
    """At the first layer, where gradients of a replica with infinite weights are no numbers."""
    stack = Stack(table, network, ALL[:3], batch_size=128, attacks=("residual", "majority"))
    stack.advance(stack.plan(0)[:, :2])
    with torch.no_grad():
        stack.bottom.weights["layer3.linear.weight"][1] = 1e25
    steps = stack.advance(stack.plan(0)[:, 2:])
    assert bool((steps.valid[:, 1] == 0).all())
    assert bool(steps.auc["residual", "layer1"][:, [0, 2]].isfinite().all())


def test_pictures_run_away_alone(pictures, small_conv):
    settings = (Setting("none"), Setting("matched", "leak_auc", 0.6), Setting("marvell", "scale", 1.0))
    right = poisoned(pictures, small_conv, None, "", 0.0, settings=settings)[2]
    for replica in range(3):
        name = next(iter(Stack(pictures, small_conv, settings, batch_size=32).bottom.weights))
        steps = poisoned(pictures, small_conv, replica, f"bottom {name}", torch.inf, settings=settings)[2]
        others = [place for place in range(3) if place != replica]
        assert bool((steps.valid[:, replica] == 0).all())
        assert torch.equal(steps.loss[:, others], right.loss[:, others])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_the_others_go_on_too(table, network):
    steps = poisoned(table, network, 2, "top logit.weight", torch.inf, device="cuda")[2]
    others = [place for place in range(len(ALL)) if place != 2]
    assert bool((steps.valid[:, 2] == 0).all())
    assert bool((steps.valid[:, others] == 1).all())
    assert bool(steps.loss[:, others].isfinite().all())
