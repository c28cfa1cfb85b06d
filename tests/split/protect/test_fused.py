"""What is compiled on CUDA traces into one graph each and gives the same numbers; seen here without a GPU."""

import functools

import pytest
import torch

from tacit.split.protect.gradient import _base, _knob, _moments, _solver, marvell, matched
from tacit.split.protect.gradient._stack import Stacked, stacked

MODULES = (_base, _knob, _moments, marvell, matched)


def run(protection, width):
    state, sent = protection.init(), []
    for step in range(4):
        g = torch.Generator().manual_seed(step)
        labels = (torch.rand(2, 64, generator=g) < 0.3).float()
        grad = torch.randn(2, 64, width, generator=g) + labels[..., None]
        done = protection.update(grad, labels, state, [g] if isinstance(protection, Stacked) else g)
        state = done.state
        sent.append(done.value)
    return torch.stack(sent), done.report


@pytest.fixture
def traced(monkeypatch):
    """Makes every compiled part one that is traced whole (one that can't be would raise) and generates no code."""

    def trace(backend):
        part_of, parts = functools.partial(torch.compile, backend=backend, fullgraph=True), 0
        for module in MODULES:
            for name, part in vars(module).copy().items():
                if hasattr(part, "__wrapped__") and part.__module__ == module.__name__ and name.startswith("_"):
                    monkeypatch.setattr(module, name, part_of(part.__wrapped__))
                    parts += 1
        stages = tuple(part_of(stage) for stage in (_solver._begin_search, _solver._by_sections, _solver._finish))
        monkeypatch.setattr(_solver, "_stages", lambda device: stages)
        return parts

    yield trace
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("make", "width", "backend"),
    [  # the same parts with numbers and with tensors for strengths; the latter go through what rewrites graphs as well
        (lambda: marvell.marvell(scale=4.0), 8, "eager"),
        (lambda: matched.matched(leak_auc=0.6), 8, "eager"),
        (lambda: matched.matched(leak_auc=0.6, visits=2), 300, "eager"),
        (lambda: stacked([marvell.marvell(leak_auc=auc) for auc in (0.6, 0.7)]), 8, "aot_eager"),
        (lambda: stacked([matched.matched(scale=scale) for scale in (1.0, 4.0)]), 8, "aot_eager"),
        (lambda: stacked([matched.matched(leak_auc=auc, visits=2) for auc in (0.6, 0.7)]), 300, "aot_eager"),
    ],
    ids=[
        "marvell",
        "matched",
        "matched on a wide cut",
        "leaks of marvell",
        "strengths of matched",
        "leaks of matched on a wide cut",
    ],
)
def test_traced_parts_give_the_same(make, width, backend, traced):
    plain, figures = run(make(), width)
    assert traced(backend) >= 10
    again, again_figures = run(make(), width)
    torch.testing.assert_close(again, plain)
    for name, figure in figures.items():
        torch.testing.assert_close(again_figures[name], figure, msg=name)
