"""Replicas of several protections and strengths in one call give what each gives alone."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tacit.contracts import noise_source
from tacit.errors import LabelsError, TensorError, UsageError
from tacit.protect.gradient import protection
from tacit.protect.gradient._chain import chain
from tacit.protect.gradient._stack import stacked

CLOSE = {torch.float64: (1e-9, 1e-12), torch.float32: (1e-4, 1e-5)}  # of a report, and of what is sent


class Each:
    """A source for a group: every member draws from a generator of its own, as it would alone."""

    def __init__(self, *seeds: int) -> None:
        self.sources = [noise_source(torch.Generator().manual_seed(seed)) for seed in seeds]

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        assert shape[0] == len(self.sources)
        return torch.cat([source.normal((1, *shape[1:]), dtype=dtype, device=device) for source in self.sources])

    uniform = normal


def batches(step: int, replicas: int, *, size: int = 24, cut: tuple[int, ...] = (6,), dtype: torch.dtype):
    """Gradients of both classes; now and then a replica has one class, one positive, or nothing but zeros."""
    g = torch.Generator().manual_seed(1000 + step)
    labels = (torch.rand(replicas, size, generator=g) < 0.3).long()
    labels[:, 0], labels[:, 1] = 1, 0
    kind = step % 5
    if kind == 3:
        labels[step % replicas] = step % 2
    if kind == 4:
        labels[step % replicas] = torch.arange(size) == 2
    p = torch.rand(replicas, size, generator=g, dtype=torch.float64)
    direction = torch.randn(*cut, generator=g, dtype=torch.float64)
    spread = torch.randn(replicas, size, *cut, generator=g, dtype=torch.float64)
    grad = (p - labels).reshape(replicas, size, *[1] * len(cut)) * (direction + 0.4 * spread) * 0.1
    if step == 9:
        grad[step % replicas] = 0
    return grad.to(dtype), labels


def both(made, steps: int, *, dtype: torch.dtype = torch.float64, size: int = 24, cut: tuple[int, ...] = (6,)):
    """Each step's answer, with what every replica's own protection sends and reports on the same noise."""
    together = stacked(made)
    state, alone = together.init(), [each.init() for each in made]
    noises = [Each(*group) for group in together.groups]
    own = [torch.Generator().manual_seed(replica) for replica in range(len(made))]
    for step in range(steps):
        grad, labels = batches(step, len(made), size=size, cut=cut, dtype=dtype)
        answer = together.update(grad, labels, state, noises, grad * 3)
        single = [each.update(grad[r], labels[r], alone[r], own[r], grad[r] * 3) for r, each in enumerate(made)]
        state, alone = answer.state, [done.state for done in single]
        yield step, answer, single


def assert_same(made, steps: int = 40, *, dtype: torch.dtype = torch.float64, **sizes) -> None:
    figure, sent = CLOSE[dtype]
    for step, answer, single in both(made, steps, dtype=dtype, **sizes):
        for replica, done in enumerate(single):
            where = f"replica {replica}, step {step}"
            assert answer.value[replica].dtype == dtype
            off = (answer.value[replica] - done.value).abs().amax()
            assert off <= sent * done.value.abs().amax(), f"{where}: off by {off}"
            for name, value in answer.report.items():
                assert value.shape == (len(made),)
                wanted = done.report.get(name, torch.zeros(()))
                torch.testing.assert_close(
                    value[replica].double(), wanted.double(), rtol=figure, atol=1e-30, msg=f"{name}, {where}"
                )


def iso(t: float):
    return protection("iso", t=t)


STRENGTHS = {
    "iso": [{"t": t} for t in (0.01, 1.0, 25.0)],
    "clip": [{"norm": norm} for norm in (0.01, 0.1, 10.0)],
    "max_norm": [{}, {}],
    "none": [{}, {}],
    "marvell scale": [{"scale": scale} for scale in (0.1, 4.0, 40.0)],
    "marvell sum_kl": [{"sum_kl": k} for k in (0.01, 0.16, 3.6)],
    "marvell leak_auc": [{"leak_auc": auc, "warmup": 5} for auc in (0.51, 0.6, 0.9)],
    "marvell detection_error": [{"detection_error": error, "warmup": 0} for error in (0.1, 0.4)],
    "matched scale": [{"scale": scale} for scale in (0.1, 4.0, 40.0)],
    "matched leak_auc": [{"leak_auc": auc, "warmup": 5} for auc in (0.51, 0.6, 0.9)],
    "matched visits": [{"leak_auc": auc, "visits": 4} for auc in (0.55, 0.7)],
    "label_distance_correlation": [{"weight": weight} for weight in (0.01, 1.0, 30.0)],
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", STRENGTHS)
def test_every_strength_as_alone(name, dtype):
    made = [protection(name.split()[0], **options) for options in STRENGTHS[name]]
    assert stacked(made).groups == (tuple(range(len(made))),)
    assert_same(made, dtype=dtype)
