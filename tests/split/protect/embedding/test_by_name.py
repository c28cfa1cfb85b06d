import math

import pytest

from tacit.errors import UsageError
from tacit.split.protect.embedding import embedding_protection, names

NEEDED = {
    "adversarial": {"weight": 1.0},
    "distance_correlation": {"weight": 1.0},
    "gaussian": {"std": 1.0},
    "noise_regularization": {"weight": 1.0},
}
STRENGTHS = [
    *[(name, "weight") for name in ("adversarial", "distance_correlation", "noise_regularization")],
    *[(name, "learning_rate") for name in ("adversarial", "noise_regularization")],
    ("adversarial", "clip"),
    ("noise_regularization", "width"),
    ("gaussian", "std"),
    ("gaussian", "snr"),
    ("gaussian", "clip"),
]


def test_every_name_makes_a_protection_of_that_name():
    assert names() == sorted(NEEDED)
    for name, options in NEEDED.items():
        assert embedding_protection(name, **options).name == name


@pytest.mark.parametrize("name", ["gauss", "", "_base", "_reconstructor", "Gaussian", "os"])
def test_an_unknown_name_is_answered_with_the_known_ones(name):
    with pytest.raises(UsageError, match="there are: adversarial, distance_correlation, gaussian, noise_r") as caught:
        embedding_protection(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", NEEDED)
def test_an_unknown_option_is_answered_with_the_known_ones(name):
    with pytest.raises(UsageError, match=f"protection '{name}' can't be made: .*'strenght'; its options are: "):
        embedding_protection(name, **NEEDED[name], strenght=1.0)


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_strength_is_named(name):
    with pytest.raises(UsageError, match=r"weight|std, snr; got none"):
        embedding_protection(name)


def test_two_strengths_at_once_are_refused():
    with pytest.raises(UsageError, match="got std and snr"):
        embedding_protection("gaussian", std=1.0, snr=4.0)


@pytest.mark.parametrize(("name", "knob"), STRENGTHS)
@pytest.mark.parametrize("value", [-1.0, 0, math.nan, math.inf, True, "1", [1.0]])
def test_a_strength_that_is_no_positive_number_is_refused_by_name(name, knob, value):
    others = {} if knob in ("std", "snr") else {key: one for key, one in NEEDED[name].items() if key != knob}
    with pytest.raises(UsageError, match=f"{knob} = .* is out of range: it is a"):
        embedding_protection(name, **{**others, knob: value})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("distance_correlation", {"log": 1}),
        ("distance_correlation", {"unbiased": "no"}),
        ("noise_regularization", {"noise": "laplace"}),
        ("adversarial", {"reconstructor": "mlp"}),
        ("noise_regularization", {"reconstructor": 3}),
    ],
    ids=str,
)
def test_other_options_are_refused_by_name(name, options):
    (knob,) = options
    with pytest.raises(UsageError, match=f"{knob} = "):
        embedding_protection(name, **{**NEEDED[name], **options})
