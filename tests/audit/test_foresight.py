"""What is about to be sent: as the protection would do it, batch after batch and visit after visit."""

import math

import pytest
import torch
from torch.nn import functional

from tacit.audit.foresight import QUICK, Sent, figures, on_batches, on_visits
from tacit.audit.run import Finding
from tacit.contracts import Estimate, View
from tacit.split.protect.gradient import protection

ROWS = 300


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(name="sent")
def _sent():
    """Three visits of some examples, sent bare: gradients (p - y) * a direction, always as long, with a spread."""
    noise = generator()
    labels = (torch.rand(ROWS, generator=noise) < 0.4).long()
    p = torch.sigmoid(torch.randn(ROWS, generator=noise))
    way = 2 * functional.normalize(torch.randn(5, generator=noise), dim=0)
    clean = (p - labels)[:, None] * way + 0.1 * torch.randn(3, ROWS, 5, generator=noise)
    rows = torch.arange(ROWS).expand(3, -1)
    z = torch.randn(3, ROWS, 5, generator=noise)
    return Sent(View.of(clean.clone(), rows=rows, embedding=z), clean, z), labels


def test_a_protection_is_tried_on_batches_in_their_order(sent):
    """The very same numbers as if the protection had been there from this state on."""
    seen, labels = sent
    protect = protection("matched", leak_auc=0.6, visits=3)
    found = seen.under(protect, protect.init(), labels, generator(1))
    state, noise = protect.init(), generator(1)
    for step in range(3):
        done = protect.update(seen.clean[step], labels, state, noise, seen.embedding[step])
        state = done.state
        assert torch.equal(found.view.gradient[step], done.value)
    assert torch.equal(found.clean, seen.clean)
    assert torch.equal(found.view.rows, seen.view.rows)
    assert torch.equal(seen.view.gradient, seen.clean), "what was sent stays as it was"


def test_visits_to_come_are_added_from_the_last_gradients_on(sent):
    seen, labels = sent
    protect = protection("iso", t=1.0)
    more = seen.again(protect, protect.init(), labels, generator(1), times=4, batch=128)
    assert more.view.gradient.shape == (7, ROWS, 5)
    assert torch.equal(more.view.gradient[:3], seen.view.gradient), "what was sent can't be taken back"
    assert all(torch.equal(rows, torch.arange(ROWS)) for rows in more.view.rows)
    assert all(torch.equal(clean, seen.clean[-1]) for clean in more.clean[3:])
    added = more.view.gradient[3:] - seen.clean[-1]
    assert not torch.equal(added[0], added[1]), "noise is fresh at every visit"
    strongest = [seen.clean[-1][some].square().sum(1).max() for some in torch.arange(ROWS).split(128)]
    for some, power in zip(torch.arange(ROWS).split(128), strongest, strict=True):
        assert float(added[:, some].square().sum(2).mean()) == pytest.approx(float(power), rel=0.2)


def test_no_visit_to_come_leaves_everything_as_it_is(sent):
    seen, labels = sent
    same = seen.again(protection("none"), None, labels, generator(), times=0, batch=64)
    assert torch.equal(same.view.gradient, seen.view.gradient)
    assert same.clean.shape == seen.clean.shape


def test_more_noise_leaves_less_and_visits_add_up(sent):
    seen, labels = sent
    worst = {}
    for t in (0.5, 8.0):
        protect = protection("iso", t=t)
        one = seen.under(protect, None, labels, generator(2))
        worst[t] = (
            max(each.value for each in on_batches(one, labels, seed=0)),
            max(each.value for each in on_visits(one, labels, seed=0)),
        )
    assert worst[0.5][0] > worst[8.0][0] + 0.05
    assert worst[8.0][1] > worst[8.0][0] + 0.04, "three visits tell more than one: by 0.11, known to 0.015"
    bare = on_batches(seen, labels, seed=0)
    assert max(each.low for each in bare) > 0.95


def test_what_can_run_runs_and_the_rest_is_left_out(sent):
    seen, labels = sent
    assert {one.attack for one in on_batches(seen, labels, seed=0)} == set(QUICK)
    assert {one.on for one in on_visits(seen, labels, seed=0)} == {"visits"}
    assert on_batches(seen, torch.zeros(ROWS, dtype=torch.int64), seed=0, attacks=("norm", "cosine")) == []


def test_figures_count_what_lies_above_what_the_attacker_had():
    leak, had = Estimate(0.8, 0.75, 0.85), Estimate(0.72, 0.7, 0.74)
    (one,) = figures([Finding("spectral", leak, had, 0.84)], "batches")
    assert (one.value, one.low, one.upper) == pytest.approx((0.58, 0.53, 0.62))
    (coin,) = figures([Finding("norm", Estimate(0.48, 0.45, 0.51), None, 0.47)], "visits")
    assert (coin.value, coin.low, coin.upper) == pytest.approx((0.5, 0.45, 0.48))


@pytest.mark.parametrize("place", range(4))
def test_a_finding_that_is_no_number_holds_no_limit(place):
    value, low, high, upper = (math.nan if place == one else 0.51 for one in range(4))
    (one,) = figures([Finding("norm", Estimate(value, low, high), None, upper)], "batches")
    assert one.over(0.6) == (math.inf if place != 2 else pytest.approx(-0.09)), (
        "the upper end of the mean is in `upper`"
    )
