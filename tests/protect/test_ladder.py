"""Public steps of strength: each has twice the noise power of the one before."""

import pytest
import torch

from tacit.contracts import Event, noise_source
from tacit.protect.embedding import embedding_protection
from tacit.protect.gradient import chain, protection
from tacit.protect.ladder import HIGHEST, spelled, stronger, stronger_embedding

LEVEL = 3

MARVELL = [{"scale": 4.0}, {"sum_kl": 0.4}, {"detection_error": 0.35}, {"leak_auc": 0.65}]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(rows=4000, width=6):
    """Two isotropic classes whose means are apart, as Marvell's model has them."""
    noise = seeded(1)
    labels = (torch.arange(rows) % 4 == 0).long()
    gap = torch.zeros(width)
    gap[0] = 0.5
    return 0.5 * torch.randn(rows, width, generator=noise) + labels[:, None] * gap, labels


def after(protect, grad, labels, steps=12):
    """What a protection does in the course of a run: the last call, and the noise that it added."""
    state, noise = protect.init(), seeded(2)
    for _ in range(steps):
        done = protect.update(grad, labels, state, noise)
        state = done.state
    return done, float(((done.value - grad) ** 2).sum(1).mean())


@pytest.mark.parametrize(
    "base",
    [
        protection("iso", t=0.5),
        protection("marvell", scale=4.0),
        chain(protection("clip", norm=100.0), protection("iso", t=0.5)),
    ],
    ids=["iso", "marvell by scale", "chain"],
)
def test_a_level_has_twice_the_noise_of_the_one_before(base):
    grad, labels = batch()
    for level in (1, LEVEL):
        raised = stronger(base, level)
        planned = [float(after(one, grad, labels)[0].report["power"]) for one in (base, raised)]
        added = [after(one, grad, labels)[1] for one in (base, raised)]
        assert planned[1] / planned[0] == pytest.approx(2**level, rel=1e-3)
        assert added[1] / added[0] == pytest.approx(2**level, rel=0.1), "what was really added"


@pytest.mark.parametrize("options", MARVELL, ids=["scale", "sum_kl", "detection_error", "leak_auc"])
def test_marvell_allows_so_many_times_less_in_every_spelling(options):
    grad, labels = batch()
    base = protection("marvell", **options)
    raised = stronger(base, LEVEL)
    assert raised.knob == base.knob
    assert raised.sum_kl == pytest.approx(base.sum_kl / 2**LEVEL)
    again = protection("marvell", **{raised.knob: raised.strength})
    assert again.sum_kl == pytest.approx(raised.sum_kl), "its own spelling says the same"
    power = [float(after(one, grad, labels)[0].report["power"]) for one in (base, raised)]
    assert power[1] > 2 ** (LEVEL - 1) * power[0], "noise rises about as the allowed sumKL falls"


@pytest.mark.parametrize("options", [{"scale": 4.0}, {"leak_auc": 0.65}], ids=["scale", "leak_auc"])
def test_matched_gets_as_much_more_noise_at_once(options):
    grad, labels = batch()
    base = protection("matched", visits=3, **options)
    raised = stronger(base, LEVEL)
    assert raised.sum_kl == pytest.approx(base.sum_kl / 2**LEVEL)
    assert raised.visits == 3
    (one, added), (other, more) = after(base, grad, labels), after(raised, grad, labels)
    assert float(other.report["power"]) == pytest.approx(8 * float(one.report["power"]), rel=0.15)
    assert more / added == pytest.approx(8, rel=0.15)


def test_level_0_is_what_was_configured_and_levels_add_up():
    base = protection("matched", leak_auc=0.6, visits=3)
    assert stronger(base, 0) is base
    twice = stronger(stronger(base, 2), 3)
    assert repr(twice) == repr(stronger(base, 5))
    highest = stronger(base, HIGHEST)
    assert 0.5 < highest.strength < 0.51


def test_what_has_no_strength_cannot_be_raised():
    assert stronger(protection("none"), 1) is None
    assert stronger(protection("max_norm"), 1) is None
    assert stronger(chain(protection("clip", norm=1.0), protection("none")), 1) is None


def test_of_a_chain_what_adds_noise_is_raised_and_the_rest_stays():
    base = chain(protection("clip", norm=0.1), protection("iso", t=1.0))
    raised = stronger(base, 2)
    assert raised.links[0] is base.links[0]
    assert raised.links[1].t == 4.0


# --- what was learned serves another strength ------------------------------------------------------------------------


def test_a_raised_strength_has_its_noise_at_once_and_keeps_what_was_learned():
    grad, labels = batch()
    base = protection("matched", leak_auc=0.65, visits=3)
    raised = stronger(base, LEVEL)
    state = after(base, grad, labels, steps=20)[0].state
    powers = [float(one.update(grad, labels, state, seeded(3)).report["power"]) for one in (base, raised)]
    assert powers[1] == pytest.approx(8 * powers[0], rel=1e-4)


# --- embeddings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"std": 0.3}, {"snr": 4.0}, {"snr": 4.0, "clip": 2.0}], ids=["std", "snr", "clip"])
def test_noise_on_embeddings_doubles_with_each_level(options):
    z = torch.randn(3000, 5, generator=seeded(4))
    base = [embedding_protection("gaussian", **options)]
    power = []
    for level in (0, LEVEL):
        (one,) = stronger_embedding(base, level)
        source = noise_source(seeded(5))
        power.append(float((one.transform(z, source) - one.transform(z, source)).square().mean()))  # clipped alike
    assert power[1] / power[0] == pytest.approx(2**LEVEL, rel=0.1)


def test_only_noise_is_raised():
    other = embedding_protection("distance_correlation", weight=0.1)
    assert stronger_embedding([other], 1) is None
    assert stronger_embedding([], 1) is None
    first, second = stronger_embedding([other, embedding_protection("gaussian", std=1.0)], 2)
    assert first is other
    assert second.std == 2.0


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Event("none"), "none"),
        (Event("iso", {"t": 16.0}), "iso(t=16)"),
        (Event("marvell", {"knob": "scale", "strength": 4.0, "sum_kl": 0.25, "warmup": 2}), "marvell(scale=4)"),
        (Event("gaussian", {"std": None, "snr": 1.25, "clip": None}), "gaussian(snr=1.25)"),
        (Event("chain", parts=(Event("clip", {"norm": 0.1}), Event("iso", {"t": 2.0}))), "clip(norm=0.1) + iso(t=2)"),
    ],
)  # fmt: skip
def test_what_was_done_in_one_line(event, said):
    assert spelled(event) == said


def test_the_events_of_raised_protections_can_be_spelled():
    raised = stronger(protection("matched", leak_auc=0.6, visits=3), 2)
    assert spelled(raised.event) == f"matched(leak_auc={raised.strength:.4g}, visits=3)"
