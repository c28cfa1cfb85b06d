import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import TensorError
from tacit.protect.embedding.quantize import quantize


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 16), st.floats(-30, 30), st.floats(-3, 3))
def test_levels_are_few_equal_and_near(seed, bits, size, shift):
    z = (torch.randn(30, 2, 4, generator=torch.Generator().manual_seed(seed)) + shift) * 10**size
    sent = quantize(bits).transform(z, None)
    span = float(z.max().double() - z.min().double())
    assert len(sent.unique()) <= 2**bits
    rounding = 4 * torch.finfo(z.dtype).eps * float(z.abs().max())
    assert float((sent - z).abs().max()) <= span / 2 ** (bits + 1) + rounding
    place = (sent.double() - float(z.min())) / span * 2**bits - 0.5
    assert float((place - place.round()).abs().max()) <= rounding / span * 2**bits * 2
    order = z.flatten().argsort()
    assert (sent.flatten()[order].diff() >= 0).all()


def test_all_levels_are_used_where_entries_lie_everywhere():
    z = torch.linspace(-1, 3, 4096).reshape(64, 64)
    for bits in (1, 3, 8):
        assert len(quantize(bits).transform(z, None).unique()) == 2**bits


def test_the_gradient_goes_straight_through():
    z = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    back = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    quantize(2).transform(z, None).backward(back)
    assert torch.equal(z.grad, back)


def test_nothing_of_the_rest_is_left_beside_the_level():
    """Entries of one level come out as one number, bit for bit, also where the graph is alive."""
    z = torch.tensor([[0.0, 0.1, 0.2, 0.3, 1.0]], requires_grad=True)
    sent = quantize(1).transform(z, None)
    assert sent.tolist() == [[0.25, 0.25, 0.25, 0.25, 0.75]]


@pytest.mark.parametrize("value", [0.0, 3.5, -1e-40])
def test_a_constant_batch_stays_constant(value):
    sent = quantize(4).transform(torch.full((3, 2), value), None)
    torch.testing.assert_close(sent, torch.full((3, 2), value))


def test_entries_that_leave_no_room_are_refused():
    with pytest.raises(TensorError, match=r"leave no room in torch\.float32"):
        quantize(4).transform(torch.tensor([[-3e38, 3e38]]), None)
