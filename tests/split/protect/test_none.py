import math

import pytest
import torch

from tacit.errors import TensorError
from tacit.split.protect.gradient.none import none


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        (torch.float16, torch.int16),
        (torch.bfloat16, torch.int16),
        (torch.float32, torch.int32),
        (torch.float64, torch.int64),
    ],
)
def test_every_bit_stays_as_it_is(seeded, dtype, bits):
    grad = torch.randn(6, 4, generator=seeded(0)).to(dtype)
    info = torch.finfo(dtype)
    grad[0] = torch.tensor([0.0, -0.0, info.tiny, -info.tiny], dtype=dtype)
    grad[1] = torch.tensor([info.max, info.min, info.smallest_normal, info.tiny / 2], dtype=dtype)
    for labels, value in ((torch.zeros(6), grad), (torch.zeros(2, 6), grad.expand(2, -1, -1))):
        protected = none()(value, labels, seeded(1))
        assert protected.value.dtype == dtype
        assert torch.equal(protected.value.view(bits), value.contiguous().view(bits))


def test_the_value_is_a_new_tensor_and_every_row_counts_as_untouched(seeded):
    grad = torch.ones(5, 3)
    protected = none()(grad, torch.arange(5) % 2, seeded(0))
    protected.value.zero_()
    assert (grad == 1).all()
    assert protected.report["untouched_rows"] == 5
    assert protected.report["power"] == 0
    assert protected.event.mechanism == "none"


@pytest.mark.parametrize("labels", [torch.arange(10), torch.linspace(0, 1, 10), torch.full((10,), math.nan)])
def test_labels_are_not_looked_at(seeded, labels):
    grad = torch.randn(10, 3, generator=seeded(0))
    assert torch.equal(none()(grad, labels, seeded(1)).value, grad)
    answer = none().update(grad, labels, none().init(), seeded(1))
    assert torch.equal(answer.value, grad)
    assert answer.state is None


def test_no_randomness_is_used(seeded):
    g = seeded(3)
    before = g.get_state()
    none()(torch.ones(4, 2), torch.zeros(4), g)
    assert torch.equal(g.get_state(), before)


def test_broken_gradients_are_refused_here_too(seeded):
    grad = torch.ones(4, 2)
    grad[2, 1] = math.inf
    with pytest.raises(TensorError, match="row 2"):
        none()(grad, torch.tensor([0, 3, 7, 1]), seeded(0))
