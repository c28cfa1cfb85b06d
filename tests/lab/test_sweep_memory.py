"""What a stack takes, what there is, and how replicas are parted."""

import pytest

from tacit.errors import UsageError
from tacit.lab.data import generated
from tacit.lab.data.rows import Pictures
from tacit.lab.stack.network import network_for
from tacit.lab.sweeping.memory import budget, estimate, for_recipe, in_waves, per_wave
from tacit.lab.sweeping.recipe import recipe_for

_PEAK = """
import resource, torch
torch.set_num_threads(1)
from tacit.lab.data import generated
from tacit.lab.sweeping.memory import for_recipe
from tacit.lab.sweeping.recipe import recipe_for
from tacit.lab.sweeping.settings import Setting
from tacit.lab.sweeping.wave import Wave

data = generated.table({rows}, ({cardinality},) * 6, 4, 0.3, 0)
kinds = [Setting("none"), Setting("marvell", "scale", 4.0), Setting("iso", "t", 1.0)]

def run(batch_size, replicas):
    recipe = recipe_for(
        data, epochs=1, attacks=("norm", "cosine", "hint", "majority"), layers=("cut", "layer1"),
        batch_size=batch_size, points=1, thorough=False,
    )
    wave = Wave(recipe, data, {{place: kinds[place % 3] for place in range(replicas)}})
    wave.run()
    return for_recipe(recipe, data, replicas)

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
    return recipe_for(data, **{"epochs": 2, "attacks": ("norm",), "layers": ("cut",), **options})


def test_more_of_anything_takes_more(data):
    network = network_for(data.inputs)
    least = estimate(network, data, 4, 256)
    assert estimate(network, data, 8, 256) == pytest.approx(2 * least, rel=0.05)
    assert estimate(network, data, 4, 512) > least
    assert estimate(network, data, 4, 256, last=8) - least >= 4 * 8 * 256 * 128 * 3 * 4
    assert estimate(network, data, 4, 256, follow=100, visits=5) - least == 4 * 2 * 500 * 128 * 4
    assert estimate(network, data, 4, 256, layers=5) > least
    assert estimate(network, data, 4, 256, device="cuda") - least == 1800 * (2 * 4 + 3 * 4 + 4), "the data lies there"
    assert estimate(network_for(data.inputs, width=256), data, 4, 256) > least


def test_pictures_have_an_estimate(data):
    network = network_for(Pictures(3, 84))
    assert estimate(network, data, 2, 64) > 2 * 64 * 84 * 84 * 64 * 4, "at least the first layer's output"


def test_as_many_replicas_as_fit(data):
    asked = recipe(data)
    for replicas in (1, 2, 7, 100):
        assert per_wave(asked, data, for_recipe(asked, data, replicas)) == pytest.approx(replicas, abs=1)
        assert for_recipe(asked, data, per_wave(asked, data, for_recipe(asked, data, replicas))) <= 1.01 * for_recipe(
            asked, data, replicas
        )
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
