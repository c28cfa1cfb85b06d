"""Which settings a sweep tries, and how a recipe is made."""

from dataclasses import replace

import pytest
import torch

from tacit.errors import UsageError
from tacit.lab.data import generated
from tacit.lab.data.rows import Pictures, Table
from tacit.lab.stack.network import network_for
from tacit.lab.sweeping.recipe import PAPERS, Plan, recipe_for, shortened
from tacit.lab.sweeping.settings import Setting, grid, split_names
from tacit.split.protect import gradient
from tacit.split.protect.labels.randomized_response import FACTS as FLIPS


def spelled(*protect, strengths=2, **options):
    return [one.spelled for one in grid(protect, strengths, **options)]


def test_none_is_always_there_and_first():
    assert spelled() == ["none"]
    assert spelled("none", "max_norm") == ["none", "max_norm"]


def test_the_usual_strengths_are_the_papers():
    assert [one.strength**0.5 for one in grid(["iso"], 3)[1:]] == pytest.approx([0.25, 2.5, 25])
    assert [one.strength for one in grid(["marvell"], 2)[1:]] == [0.01, 25]
    assert [one.strength for one in grid(["marvell"], 2, strongest=PAPERS["isic"].strongest)[1:]] == [0.01, 90]
    assert [one.strength for one in grid(["randomized_response"], 2)[1:]] == [0.02, 0.45]


@pytest.mark.parametrize("name", [*gradient.names(), "randomized_response"])
def test_strengths_run_from_mild_to_strong_and_can_all_be_built(name):
    facts = FLIPS if name == "randomized_response" else gradient.facts(name)
    for knob, option in ((option.name, option) for option in facts.strengths if option.sweep):
        made = grid([f"{name}:{knob}"], 9)[1:]
        values = [one.strength for one in made]
        assert [one.knob for one in made] == [knob] * 9
        assert values == sorted(values, reverse=option.stronger == "less")
        assert len(set(values)) == 9
        for one in made:
            one.build()


def test_an_auc_is_spaced_evenly_in_the_normal_quantile():
    values = torch.tensor([one.strength for one in grid(["matched"], 5)[1:]], dtype=torch.float64)
    steps = torch.special.ndtri(values).diff()
    assert values[0] == 0.95
    assert values[-1] == 0.52
    assert torch.allclose(steps, steps.mean().expand(4), atol=1e-2)  # the strengths have three digits


def test_one_strength_is_the_middle():
    assert spelled("iso", strengths=1) == ["none", "iso(t=6.25)"]


def test_options_stay_and_a_spelled_strength_is_alone():
    assert spelled("matched(visits=5)", "marvell(sum_kl=0.1)", strengths=1) == [
        "none",
        "matched(leak_auc=0.802, visits=5)",
        "marvell(sum_kl=0.1)",
    ]
    assert grid(["matched(visits=5)"], 1)[1].others == (("visits", 5),)
    assert grid(["clip(norm=0.5)"])[1] == Setting("clip", "norm", 0.5)


def test_every_setting_runs_with_every_seed_and_none_twice():
    made = grid(["iso(t=1)", "iso(t=1.0)", "max_norm"], seeds=(3, 4))
    assert [(one.spelled, one.seed) for one in made] == [
        (name, seed) for seed in (3, 4) for name in ("none", "iso(t=1)", "max_norm")
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("marvel", r"no protection 'marvel'.*iso.*marvell.*randomized_response"),
        ("marvell:rate", r"no strength 'rate'; there are: scale, sum_kl"),
        ("max_norm:t", "has no strength"),
        ("marvell(scale=1, sum_kl=2)", "more than one strength"),
        ("marvell:scale(sum_kl=2)", "more than one strength"),
        ("marvell(scale=big)", "is no number"),
        ("marvell(scale)", "write key=value"),
        ("marvell(scale=1, scale=2)", "twice"),
        ("marvell(scale=-1)", "scale"),
        ("matched(visit=2)", "visit"),
        ("randomized_response(rate=0.5)", "out of range"),
        ("randomized_response(visits=2)", "nothing else"),
        ("clip", r"clip\(norm=...\)"),
        ("a b", "is no protection"),
    ],
)
def test_what_is_no_setting_is_refused_at_once(text, words):
    with pytest.raises(UsageError, match=words):
        grid([text])


def test_no_strength_and_no_seed_are_refused():
    with pytest.raises(UsageError, match="one strength or more"):
        grid(["iso"], 0)
    with pytest.raises(UsageError, match="needs a seed"):
        grid(["iso"], 1, ())


def test_commas_part_protections_but_not_their_options():
    assert split_names(" iso ,matched(leak_auc=0.6, visits=5),, max_norm") == [
        "iso",
        "matched(leak_auc=0.6, visits=5)",
        "max_norm",
    ]


# --- recipes ---------------------------------------------------------------------------------------------------------


def recipe(rows=40000, name="generated", **options):
    data = generated.table(rows, (5, 7), 3, 0.3, 0, name=name)
    return recipe_for(data, Plan(device="cpu", **{"epochs": 2, "attacks": ("norm",), "layers": ("cut",), **options}))


def test_defaults_are_the_papers_where_they_have_any():
    assert (recipe().batch_size, recipe().learning_rate) == (1024, 1e-3)
    criteo = recipe(name="generated:criteo")
    assert (criteo.batch_size, criteo.learning_rate) == (1024, 1e-4)
    assert recipe(name="avazu").batch_size == 2048, "32768 rows are no batch of 36000"
    assert recipe(name="isic", epochs=3).learning_rate == 1e-5
    assert recipe(name="isic", batch_size=64, learning_rate=0.1).learning_rate == 0.1


def test_few_rows_have_small_batches():
    assert recipe(rows=2000).batch_size == 64
    assert recipe(rows=100).batch_size == 32


def test_a_shorter_training_than_the_papers_is_said():
    assert shortened(recipe(name="isic", epochs=3)) == "the papers train 1000 epochs on such data; this is 3 of them"
    assert shortened(recipe(name="criteo", epochs=5)) is None
    assert shortened(recipe()) is None


def test_wide_cuts_and_many_visits_are_recorded_less():
    usual = recipe()
    wide = replace(usual, network=network_for(Pictures(3, 84)), batch_size=128)
    assert wide.last * 128 < usual.last * usual.batch_size
    assert replace(usual, epochs=1000).visits == 64
    assert replace(usual, epochs=1000).follow < usual.follow
    once, quick = replace(usual, epochs=1), replace(usual, thorough=False)
    assert (once.follow, once.visits) == (0, 0)
    assert (quick.last, quick.follow, quick.visits) == (0, 0, 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs = 0"),
        ({"points": 0}, "points = 0"),
        ({"batch_size": 1}, "from 2 to the"),
        ({"batch_size": 10**6}, "from 2 to the"),
        ({"network": network_for(Table((9,), 1))}, "the network is for"),
        ({"network": {"depth": 3}}, "no size depth"),
    ],
)
def test_a_recipe_that_is_none(options, words):
    with pytest.raises(UsageError, match=words):
        recipe(rows=1000, **options)
