import math

import pytest
import torch

from tacit.errors import UsageError
from tacit.split.protect.gradient import names, protection

OPTIONS = {
    "clip": {"norm": 1.0},
    "iso": {"t": 1.0},
    "marvell": {"scale": 4.0},
    "matched": {"leak_auc": 0.6},
    "max_norm": {},
    "none": {},
}
STRENGTHS = [
    ("clip", "norm"),
    ("iso", "t"),
    ("marvell", "scale"),
    ("marvell", "sum_kl"),
    ("marvell", "detection_error"),
    ("marvell", "leak_auc"),
    ("matched", "leak_auc"),
]


def test_every_name_makes_a_protection_of_that_name(seeded):
    assert set(names()) >= set(OPTIONS)
    assert names() == sorted(names())
    grad, labels = torch.randn(16, 3, generator=seeded(0)), torch.arange(16) % 2
    for name, options in OPTIONS.items():
        made = protection(name, **options)
        assert made.name == name
        assert made(grad, labels, seeded(1)).event.mechanism == name


@pytest.mark.parametrize("name", ["marvel", "", "_base", "_solver", "chain", "Marvell", "marvell.solve", "os"])
def test_an_unknown_name_is_answered_with_the_known_ones(name):
    with pytest.raises(UsageError, match="there are: clip, iso, marvell") as caught:
        protection(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_unknown_option_is_answered_with_the_known_ones(name):
    with pytest.raises(UsageError, match=f"protection '{name}' can't be made: .*'strenght'; its options are: "):
        protection(name, **OPTIONS[name], strenght=1.0)


@pytest.mark.parametrize("name", ["clip", "iso", "marvell"])
def test_a_missing_strength_is_named(name):
    needed = {"clip": "norm", "iso": "'t'", "marvell": "scale, sum_kl, detection_error, leak_auc; got none"}[name]
    with pytest.raises(UsageError, match=needed):
        protection(name)


def test_two_strengths_at_once_are_refused():
    with pytest.raises(UsageError, match="got scale and leak_auc"):
        protection("marvell", scale=4.0, leak_auc=0.6)


@pytest.mark.parametrize(("name", "knob"), STRENGTHS)
@pytest.mark.parametrize("value", [-1.0, 0, 0.0, math.nan, math.inf, True, False, "1", [1.0]])
def test_a_strength_that_is_no_positive_number_is_refused_by_name(name, knob, value):
    with pytest.raises(UsageError, match=f"{knob} = "):
        protection(name, **{knob: value})
