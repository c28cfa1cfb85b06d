"""A replica that runs away is the only one that does."""

import pytest
import torch

from tacit.lab.stack.graph import tensors_in
from tacit.lab.stack.training import LIMIT, Stack
from tacit.lab.sweeping.settings import Setting

ALL = (
    Setting("none"),
    Setting("iso", "t", 1.0),
    Setting("marvell", "scale", 1.0),
    Setting("marvell", "scale", 4.0, seed=3),
    Setting("max_norm", seed=3),
    Setting("matched", "leak_auc", 0.6),
    Setting("randomized_response", "rate", 0.2),
    Setting("clip", "norm", 0.5, seed=3),
)
KEPT = {"batch_size": 128, "last": 2, "follow": 20, "visits": 2}


def same(left, right):
    """Every tensor of two trees, bit for bit; NaN equals NaN."""
    pairs = list(zip(tensors_in(left), tensors_in(right), strict=True))
    assert pairs
    return all(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in pairs)


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
