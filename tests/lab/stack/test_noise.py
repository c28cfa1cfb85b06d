"""The stack's own stream of random numbers: right by known answers, and normal by statistics."""

import pytest
import torch
from scipy import stats

from tacit.errors import UsageError
from tacit.lab.stack.noise import CounterNoise, GeneratorNoise, philox, stacked_noise

HERE = {"dtype": torch.float32, "device": torch.device("cpu")}


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (0x00000000, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (0xFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_philox_gives_the_published_answers(word, answer):
    """The first two known answers that come with the authors' library Random123 for philox4x32 of ten rounds."""
    one = torch.tensor([word], dtype=torch.int64)
    assert tuple(int(x) for x in philox((one, one, one, one), (one, one))) == answer


def test_numbers_are_normal_and_uniform():
    """Kolmogorov and Smirnov's test at a false-alarm rate of 1e-4 each, for a fixed seed."""
    noise = CounterNoise([5, 2**63 + 1], torch.tensor(17))
    normal, uniform = noise.normal((2, 50_000), **HERE), noise.uniform((2, 50_000), **HERE)
    for row in normal:
        assert stats.kstest(row.numpy(), "norm").pvalue > 1e-4
    for row in uniform:
        assert stats.kstest(row.numpy(), "uniform").pvalue > 1e-4
    assert float(uniform.min()) >= 0
    assert float(uniform.max()) < 1


def test_neighbours_replicas_steps_and_calls_do_not_go_together():
    """Correlations of 50,000 pairs stay under 5 standard errors: a false alarm in less than one of 10^6 for each."""
    step = torch.tensor(3)
    noise = CounterNoise([1, 2], step)
    first, second = noise.normal((2, 50_000), **HERE), noise.normal((2, 50_000), **HERE)
    step += 1
    noise.rewind()
    later = noise.normal((2, 50_000), **HERE)
    pairs = [
        (first[0], first[1]), (first[0], second[0]), (first[0], later[0]), (first[0, :-1], first[0, 1:]),
        (first[0].square(), first[1].square()), (first[0, ::4], first[0, 1::4]),
    ]  # fmt: skip
    for a, b in pairs:
        assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 5 / len(a) ** 0.5


def test_a_replica_draws_the_same_whoever_else_draws():
    for shape in ((7, 3), (64,)):
        alone = CounterNoise([9], torch.tensor(2)).normal((1, *shape), **HERE)
        among = CounterNoise([4, 9, 5], torch.tensor(2)).normal((3, *shape), **HERE)
        assert torch.equal(alone[0], among[1])


def test_generators_draw_what_a_single_run_draws():
    noise = stacked_noise([3, 4], torch.tensor(0))
    assert isinstance(noise, GeneratorNoise)
    drawn = noise.normal((2, 5, 6), **HERE)
    assert torch.equal(drawn[1], torch.randn(5, 6, generator=torch.Generator().manual_seed(4)))


def test_other_shapes_are_refused():
    with pytest.raises(UsageError, match="put them in front"):
        stacked_noise([3, 4], torch.tensor(0)).uniform((3, 5), **HERE)
