"""What every embedding protection owes: this file finds them by listing the package; each lists its options here."""

import copy
import importlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit.contracts import EmbeddingProtection, Event, Regularizer, noise_source
from tacit.errors import TensorError
from tacit.split.protect import embedding

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
INPUTS = 5

# Mild, strong and every spelling of the strength: a protection that is found and not listed here fails the suite.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "adversarial": [{"weight": 0.01}, {"weight": 100.0, "clip": None, "learning_rate": 0.1}],
    "distance_correlation": [
        {"weight": 0.01},
        {"weight": 10.0, "log": False},
        {"weight": 1.0, "unbiased": True},
    ],
    "gaussian": [{"std": 1e-3}, {"std": 30.0, "clip": 0.1}, {"snr": 100.0}, {"snr": 0.01, "clip": 5.0}],
    "noise_regularization": [{"weight": 0.01}, {"weight": 10.0, "noise": "uniform", "width": 0.5}],
}
CHANGES = {"gaussian"}  # the embedding itself
NOISY = {"gaussian"}

CASES = [(name, options) for name in embedding.names() for options in OPTIONS.get(name, [])]
every = pytest.mark.parametrize(
    ("name", "options"), CASES, ids=[f"{n}({','.join(f'{k}={v}' for k, v in o.items())})" for n, o in CASES]
)
regularizing = pytest.mark.parametrize(("name", "options"), [case for case in CASES if case[0] not in CHANGES])
on_every_device = pytest.mark.parametrize("device", DEVICES)


def make(name: str, options: dict[str, Any]) -> EmbeddingProtection:
    return embedding.embedding_protection(name, **options)


def source(seed: int = 3, device: str = "cpu"):
    return noise_source(torch.Generator(device).manual_seed(seed))


def batch(
    size: int = 16, cut: tuple[int, ...] = (4,), *, seed: int = 0, dtype: torch.dtype = torch.float32, device="cpu"
) -> tuple[Tensor, Tensor]:
    """Inputs and an embedding that has to do with them, as a leaf of the graph."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(size, INPUTS, generator=g, dtype=torch.float64)
    width = torch.Size(cut).numel()
    z = torch.tanh(x @ torch.randn(INPUTS, width, generator=g, dtype=torch.float64)).reshape(size, *cut)
    return x.to(dtype).to(device), z.to(dtype).to(device).requires_grad_()


def bound(name: str, options: dict[str, Any], x: Tensor, z: Tensor, seed: int = 1) -> Regularizer:
    torch.manual_seed(seed)
    made = make(name, options).regularizer(x[:2], z[:2], [])
    assert made is not None
    return made


def test_every_protection_is_in_this_suite():
    assert {name for name, options in OPTIONS.items() if options} == set(embedding.names())


@every
def test_it_is_a_protection_with_a_name_and_an_event(name, options):
    one = make(name, options)
    assert isinstance(one, EmbeddingProtection)
    assert one.name == name
    assert isinstance(one.event, Event)
    assert one.event.mechanism == name
    for key, value in options.items():
        assert one.event.parameters.get(key) == value
        assert f"{key}={value!r}" in repr(one)
    assert one == make(name, options)


@every
def test_the_repr_is_the_same_in_every_process(name, options):
    if name in ("adversarial", "noise_regularization"):
        options = {**options, "reconstructor": nn.Sequential(nn.Linear(4, INPUTS), nn.Tanh())}
        assert "Linear(in_features=4, out_features=5, bias=True)" in repr(make(name, options))
        assert "Linear" in make(name, options).event.parameters["reconstructor"]
    assert repr(make(name, options)) == repr(make(name, options))
    assert " at 0x" not in repr(make(name, options))


def test_every_protection_can_be_imported_by_its_own_name():
    for name in embedding.names():
        assert callable(getattr(importlib.import_module(f"tacit.split.protect.embedding.{name}"), name))
        assert getattr(embedding, name).__name__ == f"tacit.split.protect.embedding.{name}"


# --- what goes out ---------------------------------------------------------------------------------------------------


@on_every_device
@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("size", "cut"), [(16, (4,)), (8, (4, 3, 3)), (1, (4,)), (1, (1,)), (2, (7,)), (3, (300,))])
def test_shape_dtype_and_device_are_kept_and_the_input_is_untouched(name, options, size, cut, dtype, device):
    x, z = batch(size, cut, dtype=dtype, device=device)
    before = x.clone(), z.detach().clone()
    one = make(name, options)
    sent = one.transform(z, source(device=device))
    assert (sent.shape, sent.dtype, sent.device) == (z.shape, dtype, z.device)
    assert torch.isfinite(sent).all()
    assert (sent is z) == (name not in CHANGES)
    made = one.regularizer(x, z, [])
    assert (made is None) == (name in CHANGES)
    if made is not None:
        loss = made(x, z, source(device=device))
        assert loss.shape == ()
        assert torch.isfinite(loss)
        assert loss.device == z.device
    assert torch.equal(x, before[0])
    assert torch.equal(z, before[1])


@every
def test_the_same_source_gives_the_same_bytes(name, options):
    x, z = batch()
    one = make(name, options)
    first, again, other = (one.transform(z, source(seed)).detach() for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name not in NOISY)
    if name not in CHANGES:
        made = bound(name, options, x, z)
        losses = [made(x, z, source(seed)).detach() for seed in (1, 1, 2)]
        assert torch.equal(losses[0], losses[1])
        assert torch.equal(losses[0], losses[2]) == (name != "noise_regularization")


@on_every_device
@every
def test_a_gradient_reaches_z_and_none_reaches_x(name, options, device):
    x, z = batch(device=device)
    x.requires_grad_()
    one = make(name, options)
    out = one.transform(z, source(device=device))
    torch.manual_seed(0)
    made = one.regularizer(x, z, [])
    total = out.sum() if made is None else made(x, out, source(device=device))
    total.backward()
    assert x.grad is None
    assert torch.isfinite(z.grad).all()
    assert (z.grad != 0).any()


@every
@pytest.mark.parametrize(
    "odd", ["equal rows", "zero rows", "all zero", "one row", "one zero row", "tiny", "one huge row"]
)
def test_odd_batches_stay_finite(name, options, odd):
    x, z = batch(8)
    with torch.no_grad():
        if odd == "equal rows":
            x, z = x[:1].repeat(8, 1), z[:1].repeat(8, 1)
        elif odd == "zero rows":
            z[::2] = 0
        elif odd == "all zero":
            x, z = x * 0, z * 0
        elif odd == "one row":
            x, z = x[:1], z[:1]
        elif odd == "one zero row":
            x, z = x[:1], z[:1] * 0
        elif odd == "tiny":
            x, z = x * 1e-30, z * 1e-30
        else:
            z[3] *= 300
    z = z.detach().requires_grad_()
    one = make(name, options)
    out = one.transform(z, source())
    assert torch.isfinite(out).all()
    made = one.regularizer(x, z, [])
    (out.sum() + (0 if made is None else made(x, out, source()))).backward()
    assert torch.isfinite(z.grad).all()
    if name in NOISY:
        assert (out != z).any(-1).all()


@every
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_refused_by_row(name, options, bad):
    x, z = batch()
    wrong = z.detach().clone()
    wrong[11, 2] = bad
    one = make(name, options)
    if name in CHANGES:
        with pytest.raises(TensorError, match=r"the embedding: row 11 is not finite: look"):
            one.transform(wrong, source())
        return
    made = bound(name, options, x, z)
    with pytest.raises(TensorError, match=r"the embedding: row 11 is not finite: look"):
        made(x, wrong, source())
    with pytest.raises(TensorError, match=r"the input of the bottom model: row 7 is not finite"):
        made(x.index_fill(0, torch.tensor([7]), bad), z, source())


@every
def test_wrong_shapes_and_kinds_are_refused_with_the_shapes(name, options):
    one = make(name, options)
    x, z = batch()
    for wrong, said in [(z[:, 0], r"\(16,\)"), (z[:0], r"\(0, 4\)"), (z.long(), "int64"), (z.to_sparse(), "dense")]:
        with pytest.raises(TensorError, match=said):
            one.transform(wrong, source()) if name in CHANGES else one.regularizer(x, wrong, [])
    if name not in CHANGES:
        with pytest.raises(TensorError, match=r"inputs \(15, 5\) .* embedding \(16, 4\)"):
            one.regularizer(x[:-1], z, [])


# --- what learns -----------------------------------------------------------------------------------------------------


def learn(made: Regularizer, steps: range) -> list[Tensor]:
    """Losses and gradients of some steps, in which the regularizer learns as its owner lets it."""
    seen = []
    for step in steps:
        x, z = batch(seed=step)
        made.zero_grad()
        loss = made(x, z, source(step))
        loss.backward()
        if made.optimizer is not None:
            made.optimizer.step()
        seen += [loss.detach(), z.grad]
    return seen


@regularizing
def test_a_stored_state_goes_on_bit_for_bit(name, options):
    x, z = batch()
    one, other = bound(name, options, x, z, seed=1), bound(name, options, x, z, seed=2)
    learn(one, range(3))
    other.load_state_dict({key: value.clone() for key, value in one.state_dict().items()})
    assert (one.optimizer is None) == (other.optimizer is None)
    if one.optimizer is not None:
        other.optimizer.load_state_dict(copy.deepcopy(one.optimizer.state_dict()))
    for here, there in zip(learn(one, range(3, 7)), learn(other, range(3, 7)), strict=True):
        assert torch.equal(here, there)


@regularizing
def test_all_parameters_are_its_optimizers(name, options):
    made = bound(name, options, *batch())
    held = [] if made.optimizer is None else [p for group in made.optimizer.param_groups for p in group["params"]]
    assert [id(p) for p in held] == [id(p) for p in made.parameters()]


@regularizing
def test_without_a_gradient_there_is_still_a_loss(name, options):
    x, z = batch()
    made = bound(name, options, x, z)
    with torch.no_grad():
        assert torch.isfinite(made(x, z, source()))
