"""What a stack takes, what there is, and how replicas are parted."""

from dataclasses import replace

import pytest

from tacit.errors import UsageError
from tacit.lab.data import generated
from tacit.lab.data.rows import Pictures
from tacit.lab.stack.network import network_for
from tacit.lab.sweeping.memory import budget, estimate, in_waves, per_wave
from tacit.lab.sweeping.recipe import Plan, recipe_for

_PEAK = """
import resource, torch
torch.set_num_threads(1)
from tacit.lab.data import generated
from tacit.lab.sweeping.memory import estimate
from tacit.lab.sweeping.recipe import Plan, recipe_for
from tacit.lab.sweeping.settings import Setting
from tacit.lab.sweeping.wave import Wave

data = generated.table({rows}, ({cardinality},) * 6, 4, 0.3, 0)
kinds = [Setting("none"), Setting("marvell", "scale", 4.0), Setting("iso", "t", 1.0)]

def run(batch_size, replicas):
    recipe = recipe_for(data, Plan(
        epochs=1, attacks=("norm", "cosine", "hint", "majority"), layers=("cut", "layer1"),
        batch_size=batch_size, points=1, thorough=False, device="cpu",
    ))
    wave = Wave(recipe, data, {{place: kinds[place % 3] for place in range(replicas)}})
    wave.run()
    return estimate(recipe, data, replicas)

run(128, 1)  # what the libraries take for themselves is there before
before = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
estimated = run({batch}, {replicas})
print(estimated, peak() - before)
"""


@pytest.mark.parametrize(
    "case",
    [
        {"rows": 2400, "cardinality": 40, "batch": 1024, "replicas": 8},  # activations
        {"rows": 600, "cardinality": 60000, "batch": 128, "replicas": 6},  # tables
    ],
    ids=["activations", "tables"],
)
def test_the_estimate_is_within_a_factor_of_two_of_the_peak(alone, case):
    estimated, peak = (int(word) for word in alone(_PEAK.format(**case)).split())
    assert peak > 100e6, "large enough to be measured"
    assert 0.5 < estimated / peak < 2, (estimated, peak)


@pytest.fixture(scope="module")
def data():
    return generated.table(2000, (20, 30), 3, 0.3, 0)


def recipe(data, **options):
    return recipe_for(data, Plan(device="cpu", **{"epochs": 2, "attacks": ("norm",), "layers": ("cut",), **options}))


def test_more_of_anything_takes_more(data):
    bare = recipe(data, batch_size=256, thorough=False)
    least = estimate(bare, data, 4)
    assert estimate(bare, data, 8) == pytest.approx(2 * least, rel=0.05)
    assert estimate(replace(bare, batch_size=512), data, 4) > least
    kept = replace(bare, thorough=True, epochs=1)
    assert estimate(kept, data, 4) - least >= 4 * kept.last * 256 * 128 * 3 * 4 > 0
    followed = replace(kept, epochs=5)
    room = 4 * 2 * followed.follow * followed.visits * 128 * 4
    assert estimate(followed, data, 4) - estimate(kept, data, 4) == room > 0
    assert estimate(replace(bare, layers=("cut",) * 5), data, 4) > least
    on_cuda = estimate(replace(bare, device="cuda"), data, 4)
    assert on_cuda - least == 1800 * (2 * 4 + 3 * 4 + 4), "the data lies there"
    assert estimate(replace(bare, network=network_for(data.inputs, width=256)), data, 4) > least


def test_pictures_have_an_estimate(data):
    asked = replace(recipe(data, thorough=False), network=network_for(Pictures(3, 84)), batch_size=64)
    assert estimate(asked, data, 2) > 2 * 64 * 84 * 84 * 64 * 4, "at least the first layer's output"


def test_as_many_replicas_as_fit(data):
    asked = recipe(data)
    for replicas in (1, 2, 7, 100):
        assert per_wave(asked, data, estimate(asked, data, replicas)) == pytest.approx(replicas, abs=1)
        fitting = per_wave(asked, data, estimate(asked, data, replicas))
        assert estimate(asked, data, fitting) <= 1.01 * estimate(asked, data, replicas)
    with pytest.raises(UsageError, match=r"one replica takes about .* MiB, and a wave may take 0 MiB"):
        per_wave(asked, data, 1000)


@pytest.mark.parametrize("count", [1, 5, 64, 65, 100])
@pytest.mark.parametrize("most", [1, 7, 64, 1000])
@pytest.mark.parametrize("least", [1, 2, 80])
def test_waves_are_nearly_equal_and_hold_everything_once(count, most, least):
    waves = in_waves({number * 3: str(number) for number in range(count)}, most, least)
    assert [number for wave in waves for number in wave] == [number * 3 for number in range(count)]
    sizes = [len(wave) for wave in waves]
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert len(waves) == min(count, max(-(-count // most), least))


def test_nothing_is_no_wave():
    assert in_waves({}, 5) == []


def test_there_is_some_memory_here():
    assert budget("cpu") > 100e6
