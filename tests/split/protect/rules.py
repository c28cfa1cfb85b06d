"""Rules that our own protections keep beyond those that `check_protection` asks of anybody's."""

import torch

from tacit.split.protect import check
from tacit.split.protect.check import bits, same_tree
from tacit.split.protect.keyed_noise import KeyedNoise
from tests.split.protect.cases import batch, generator, in_a_run

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_LABELS = (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8, torch.int8, torch.bool)


def _opposites(grad, labels):
    """Every row with its opposite in the same class: both means are zero exactly."""
    half = len(labels) // 2
    return torch.cat([grad[:half], -grad[:half]]), torch.cat([labels[:half], labels[:half]])


ODD = {
    **check.ODD,
    "negatives only in a wide cut": lambda g, y: (g.repeat(1, 50), torch.zeros_like(y)),
    "negatives only in one coordinate": lambda g, y: (g[:, :1], torch.zeros_like(y)),
    "a single row in a wide cut": lambda g, y: (g[:1].repeat(1, 50), y[:1]),
    "a single row in one coordinate": lambda g, y: (g[:1, :1], y[:1]),
    "one of each": lambda g, y: (g[:2], y[:2]),
    "classes with the same mean": _opposites,
    "zeros only in a wide cut": lambda g, y: (torch.zeros_like(g).repeat(1, 50), y),
    "zeros only, of one class": lambda g, y: (torch.zeros_like(g), torch.zeros_like(y)),
    "a single row of zeros": lambda g, y: (torch.zeros_like(g[:1]), y[:1]),
}


def alike(one, other):
    """The same to the last bit; on a GPU, whose kernels may add in another order, nearly so."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.device.type == "cpu" or not one.dtype.is_floating_point:
        return bits(one) == bits(other)
    return torch.allclose(one, other, rtol=1e-3, atol=1e-3 * float(one.abs().max()), equal_nan=True)


def keeps_shape_dtype_and_device(make, device):
    sizes = ((16, (8,)), (16, (2, 3, 3)), (16, (1,)), (1, (8,)), (1, (1,)), (2, (5,)), (24, (300,)))
    kinds = [(size, cut, torch.float64) for size, cut in sizes] + [(24, (6,), dtype) for dtype in _DTYPES]
    for size, cut, dtype in kinds:
        protection = make()
        grad, labels = batch(size=size, cut=cut, dtype=dtype, device=device)
        first = protection.update(grad, labels, protection.init(), generator(device=device))
        second = protection.update(grad, labels, first.state, generator(device=device))
        for done in (first, second, protection(grad, labels, generator(device=device))):
            assert (done.value.shape, done.value.dtype, done.value.device) == (grad.shape, dtype, grad.device)
            assert torch.isfinite(done.value).all()
            assert all(figure.device == grad.device for figure in done.report.values())


def sends_a_new_tensor(make, device):
    grad, labels = batch(device=device)
    grad.requires_grad_()
    value = make()(grad, labels, generator(device=device)).value
    assert not value.requires_grad
    assert value.untyped_storage().data_ptr() != grad.untyped_storage().data_ptr()


def takes_labels_of_any_dtype(make, device):
    grad, labels = batch(device=device)
    want = bits(make()(grad, labels, generator(device=device)).value)
    for dtype in _LABELS:
        assert bits(make()(grad, labels.to(dtype), generator(device=device)).value) == want


def takes_any_strides(make, device):
    grad, labels = batch(cut=(2, 4), device=device)
    want = make()(grad, labels, generator(device=device)).value
    turned = grad.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    spaced = torch.stack([grad, grad], dim=-1)[..., 0]
    for other in (turned, spaced):
        got = make()(other, labels, generator(device=device)).value
        torch.testing.assert_close(got, want, rtol=0, atol=1e-9 * float(want.abs().max()))
    one = grad[:1].expand_as(grad)  # no memory of its own for each row
    assert torch.isfinite(make()(one, labels, generator(device=device)).value).all()


def answers_a_call_as_a_first_update(make, device):
    protection = make()
    grad, labels = batch(2, device=device)
    state = protection.fresh() if hasattr(protection, "fresh") else protection.init()
    alone = protection(grad, labels, generator(5, device)).value
    assert bits(alone) == bits(protection.update(grad, labels, state, generator(5, device)).value)


def same_noise_gives_the_same_step(make, device):
    protection = make()
    for steps in (0, 1, 5):
        state, (grad, labels) = in_a_run(protection, steps, device), batch(1, device=device)
        kept = in_a_run(protection, steps, device), grad.clone(), labels.clone()
        first = protection.update(grad, labels, state, generator(3, device))
        protection.update(*batch(2, device=device), first.state, generator(4, device))
        again = protection.update(grad, labels, state, generator(3, device))
        assert alike(first.value, again.value)
        assert same_tree((state, grad, labels), kept)
        if device == "cpu":
            assert same_tree((first.state, first.event, first.report), (again.state, again.event, again.report))


def takes_keyed_noise(make, device):
    protection, keyed = make(), KeyedNoise(bytes(range(32)), "check")
    state, (grad, labels) = in_a_run(protection, 2, device), batch(device=device)
    first, again = (protection.update(grad, labels, state, keyed.at(0)).value for _ in range(2))
    assert torch.isfinite(first).all()
    assert bits(first) == bits(again)


def counts_untouched_rows(make, device):
    """Noise below the resolution of a dtype is no noise, so a count by formula is not enough."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        protection = make()
        state = in_a_run(protection, 2, device, dtype=dtype)
        for seed in range(3):
            grad, labels = batch(seed, dtype=dtype, device=device)
            for some in (grad, (grad + 1).clamp(min=0.5), grad * 0):  # in the second few bits are left for noise
                done = protection.update(some, labels, state, generator(seed, device))
                assert (done.value == some).flatten(1).all(1).sum() <= done.report["untouched_rows"]


OURS = (
    keeps_shape_dtype_and_device, sends_a_new_tensor, takes_labels_of_any_dtype, takes_any_strides,
    answers_a_call_as_a_first_update, same_noise_gives_the_same_step, takes_keyed_noise, counts_untouched_rows,
)  # fmt: skip
