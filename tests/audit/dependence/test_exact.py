"""Distance correlation from all pairs: what it is, what it does not depend on, and its gradient."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacit.audit.dependence import distance_correlation, log_distance_correlation
from tacit.contracts import noise_source
from tacit.errors import TensorError

both = pytest.mark.parametrize("unbiased", [False, True], ids=["plain", "unbiased"])
measures = pytest.mark.parametrize("measure", [distance_correlation, log_distance_correlation])


def rows(seed: int, n: int = 24, p: int = 5, q: int = 3, *, tie: float = 0.7, dtype=torch.float64):
    """Rows that depend on each other, not in a linear way."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, p, generator=g, dtype=torch.float64)
    mixed = torch.tanh(x @ torch.randn(p, q, generator=g, dtype=torch.float64) / p**0.5 * 2)
    z = tie * mixed + (1 - tie) * torch.randn(n, q, generator=g, dtype=torch.float64)
    return x.to(dtype), z.to(dtype)


def turned(seed: int, width: int) -> Tensor:
    """A random orthogonal matrix."""
    g = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(width, width, generator=g, dtype=torch.float64)).Q


# --- its value -------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(("n", "p", "q"), [(4, 1, 1), (5, 3, 2), (31, 1, 7), (40, 60, 3)])
def test_it_is_what_the_definition_says(reference, unbiased, n, p, q):
    for seed in range(5):
        x, z = rows(seed, n, p, q)
        want = reference.correlation(x, z, unbiased)
        assert distance_correlation(x, z, unbiased=unbiased).item() == pytest.approx(want, abs=1e-9)
        narrow = distance_correlation(x.float(), z.float(), unbiased=unbiased)
        assert narrow.dtype == torch.float32
        assert narrow.item() == pytest.approx(want, abs=1e-5)


@both
def test_the_logarithm_is_that_of_the_value(reference, unbiased):
    x, z = rows(1)
    square = reference.square(x, z, unbiased)
    want = math.log(square + 1 / 24 if unbiased else square) / 2
    assert log_distance_correlation(x, z, unbiased=unbiased).item() == pytest.approx(want, abs=1e-9)


def test_values_by_hand():
    """A 2 x 2 design has independent columns; -1, 0, 1 and their squares have 72 / sqrt(360 * 144) as the square."""
    design = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    assert distance_correlation(design[:, :1], design[:, 1:]).item() == pytest.approx(0.0, abs=1e-6)
    x = torch.tensor([[-1.0], [0.0], [1.0]])
    assert distance_correlation(x, x**2).item() == pytest.approx(0.1**0.25, abs=1e-6)


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_trailing_dimensions_are_flattened_and_narrow_dtypes_taken(unbiased, dtype):
    x, z = rows(2, 16, 12, 6, dtype=dtype)
    flat = distance_correlation(x, z, unbiased=unbiased)
    assert flat.dtype == torch.float32
    assert torch.equal(distance_correlation(x.reshape(16, 3, 2, 2), z.reshape(16, 2, 3), unbiased=unbiased), flat)


# --- what it does not depend on --------------------------------------------------------------------------------------

shapes = st.tuples(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 6), st.integers(1, 6))


@settings(max_examples=60, deadline=None)
@given(shapes, st.floats(0, 1))
def test_it_lies_between_0_and_1(shape, tie):
    value = distance_correlation(*rows(*shape, tie=tie)).item()
    assert 0 <= value <= 1


@settings(max_examples=60, deadline=None)
@given(shapes, st.booleans(), st.floats(-1e4, 1e4), st.floats(-6, 6), st.booleans())
def test_moving_turning_scaling_and_reordering_change_nothing(shape, unbiased, shift, size, mirrored):
    x, z = rows(*shape)
    assume(len(x) >= 4 or not unbiased)
    want = distance_correlation(x, z, unbiased=unbiased).item()
    near = pytest.approx(want, abs=1e-5)  # a root: 1e-10 in the square
    factor = (-1 if mirrored else 1) * 10**size
    assert distance_correlation(x, z + shift, unbiased=unbiased).item() == near
    assert distance_correlation(x, z * factor, unbiased=unbiased).item() == near
    assert distance_correlation(x, z @ turned(shape[0], z.shape[1]), unbiased=unbiased).item() == near
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(shape[0]))
    assert distance_correlation(x[order], z[order], unbiased=unbiased).item() == near
    assert distance_correlation(z, x, unbiased=unbiased).item() == near


@settings(max_examples=60, deadline=None)
@given(shapes, st.floats(-3, 3), st.floats(-100, 100))
def test_a_moved_turned_scaled_copy_gives_1(shape, size, shift):
    x, _ = rows(*shape)
    copy = shift + 10**size * x @ turned(shape[0] + 1, x.shape[1])
    assert distance_correlation(x, copy).item() == pytest.approx(1.0, abs=1e-9)
    if len(x) > 4:
        assert distance_correlation(x, copy, unbiased=True).item() == pytest.approx(1.0, abs=1e-6)


def of_each(x, z, **options):
    """The correlation of each of several batches."""
    return torch.stack([distance_correlation(*pair, **options) for pair in zip(x, z, strict=True)])


def test_independent_rows_give_about_0_without_bias_and_more_with():
    """The mean square of 400 independent batches within 4 standard errors of 0: false alarms 6e-5."""
    g = torch.Generator().manual_seed(5)
    x, z = torch.randn(400, 20, 4, generator=g), torch.rand(400, 20, 6, generator=g)
    each = of_each(x, z, unbiased=True).double()
    squares = each * each.abs()
    assert abs(squares.mean()) < 4 * squares.std() / 20
    plain = of_each(x, z)
    assert plain.min() > 0.2
    assert distance_correlation(x[0].repeat(50, 1), torch.rand(1000, 6, generator=g)).item() < 0.15


def test_figure_2_of_the_report_the_plain_one_falls_with_the_batch_size_and_the_unbiased_one_does_not():
    """384 columns against normal noise, 8 batches of each size."""
    g = torch.Generator().manual_seed(6)
    mix = torch.randn(12, 384, generator=g)
    plain, corrected = [], []
    for n in (16, 64, 192, 512):
        x = (torch.randn(8, n, 12, generator=g) @ mix + torch.randn(8, n, 384, generator=g)).relu()
        z = torch.randn(8, n, 384, generator=g)
        plain.append(of_each(x, z).mean().item())
        each = of_each(x, z, unbiased=True).double()
        squares = each * each.abs()
        assert abs(squares.mean()) < 6 * squares.std() / 8**0.5  # Student's with 7 degrees of freedom: 5e-4
        corrected.append(squares.mean().item())
    assert plain[0] > 0.9  # 0.96, 0.87, 0.73, 0.58 were measured
    assert all(later < 0.95 * earlier for earlier, later in itertools.pairwise(plain))
    assert plain[-1] < 0.65
    assert all(abs(square) < 0.05 for square in corrected)


# --- its gradient ----------------------------------------------------------------------------------------------------


@measures
@both
@pytest.mark.parametrize(("n", "p", "q"), [(12, 2, 2), (13, 1, 4), (14, 12, 1)])
def test_the_gradient_is_that_of_finite_differences(measure, unbiased, n, p, q):
    drawn = (rows(seed, n, p, q, tie=1.0) for seed in range(60))
    far = (pair for pair in drawn if distance_correlation(*pair, unbiased=True) > (1.01 / n) ** 0.5)
    chosen = list(itertools.islice(far if unbiased else drawn, 3))  # nearer to 0 the slope is held
    assert len(chosen) == 3
    for x, z in chosen:
        x.requires_grad_()
        z.requires_grad_()
        assert torch.autograd.gradcheck(lambda a, b: measure(a, b, unbiased=unbiased), (x, z), atol=1e-6)


def test_near_0_the_slope_of_the_unbiased_one_is_that_at_chance():
    g = torch.Generator().manual_seed(11)
    pairs = torch.randn(30, 2, 30, 2, generator=g, dtype=torch.float64)
    x, z = min(pairs, key=lambda pair: distance_correlation(*pair, unbiased=True).abs().item())
    z.requires_grad_()
    value = distance_correlation(x, z, unbiased=True)
    assert value**2 < 1 / 30
    (near,) = torch.autograd.grad(value, z)
    step = 1e-6 * torch.randn(30, 2, generator=g, dtype=torch.float64)
    ends = [distance_correlation(x, z.detach() + sign * step, unbiased=True).item() for sign in (1, -1)]
    squares = [math.copysign(end**2, end) for end in ends]
    assert (near * step).sum().item() == pytest.approx((squares[0] - squares[1]) / 2 * 30**0.5 / 2, rel=1e-4)


def test_only_the_side_that_asks_gets_a_gradient():
    x, z = rows(3)
    z.requires_grad_()
    distance_correlation(x, z).backward()
    assert x.grad is None
    assert z.grad.abs().sum() > 0


def equal_pair(z: Tensor) -> Tensor:
    return torch.cat([z[:1], z[:1], z[2:]])


ODD = {
    "equal rows": equal_pair,
    "all rows equal": lambda z: z[:1].repeat(len(z), 1),
    "all rows 0": torch.zeros_like,
    "all rows 0.1": lambda z: torch.full_like(z, 0.1),
    "a constant column": lambda z: torch.cat([torch.full_like(z[:, :1], 3.7), z[:, 1:]], 1),
    "every row twice": lambda z: z[: len(z) // 2].repeat(2, 1),
    "two distinct rows": lambda z: torch.where(torch.arange(len(z))[:, None] < 5, z[:1], z[1:2]),
    "two rows": lambda z: z[:2],
    "two equal rows": lambda z: z[:1].repeat(2, 1),
    "all apart alike": lambda z: torch.eye(len(z)),
    "far away": lambda z: z + 1e6,
    "tiny": lambda z: z * 1e-20,
    "huge": lambda z: z * 1e20,
    "at the end of the range": lambda z: z.clamp(-1, 1) * 3e38,
    "below the range": lambda z: z * 1e-42,
    "one huge row": lambda z: torch.cat([z[:-1] * 1e-15, z[-1:] * 1e15]),
}


@measures
@both
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("side", ["z", "x", "both"])
def test_odd_rows_give_finite_values_and_gradients_in_single_precision(measure, unbiased, odd, side):
    x, z = rows(4, 16, 16, 16, dtype=torch.float32)
    other = ODD[odd](z)
    if unbiased and len(other) < 4:
        pytest.skip("the unbiased version needs four rows")
    z, x = (z[: len(other)], other) if side == "x" else (other, x[: len(other)] if side == "z" else other.clone())
    x, z = x.clone().requires_grad_(), z.clone().requires_grad_()
    value = measure(x, z, unbiased=unbiased)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(x.grad).all()
    assert torch.isfinite(z.grad).all()
    if measure is distance_correlation:
        assert -1 <= value <= 1
    if odd.startswith("all rows"):
        assert (value == 0) == (measure is distance_correlation)
        assert (z.grad == 0).all()
        assert (x.grad == 0).all()


def test_equal_rows_are_pulled_alike():
    x, z = rows(5)
    x, z = equal_pair(x), equal_pair(z).requires_grad_()
    distance_correlation(x, z).backward()
    torch.testing.assert_close(z.grad[0], z.grad[1], rtol=0, atol=1e-9)


@both
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_gives_nan(unbiased, bad):
    x, z = rows(6)
    z[3, 1] = bad
    assert distance_correlation(x, z, unbiased=unbiased).isnan()
    assert log_distance_correlation(x, z, unbiased=unbiased).isnan()


@both
def test_it_can_be_learned_away(unbiased):
    """Twenty steps against the logarithm lower a correlation of some 0.7 to less than a half of it."""
    x, z = rows(7, 64, tie=1.0, dtype=torch.float32)
    z.requires_grad_()
    optimizer = torch.optim.Adam([z], lr=0.1)
    before = distance_correlation(x, z, unbiased=unbiased).item()
    for _ in range(20):
        optimizer.zero_grad()
        log_distance_correlation(x, z, unbiased=unbiased).backward()
        optimizer.step()
    assert before > 0.5
    assert distance_correlation(x, z, unbiased=unbiased).item() < before / 2


# --- refusals --------------------------------------------------------------------------------------------------------


@measures
@pytest.mark.parametrize(
    ("x", "z", "options", "says"),
    [
        ((5, 2), (4, 2), {}, r"x is \(5, 2\) and z is \(4, 2\).*same examples"),
        ((5,), (5, 2), {}, r"pass \(rows, \*\) twice"),
        ((5, 0), (5, 2), {}, "one of them is empty"),
        ((1, 2), (1, 2), {}, "2 rows or more: pass larger batches"),
        ((3, 2), (3, 2), {"unbiased": True}, "needs 4 rows or more: pass larger batches"),
    ],
)
def test_wrong_shapes_are_refused_with_the_shapes(measure, x, z, options, says):
    with pytest.raises(TensorError, match=says):
        measure(torch.ones(x), torch.ones(z), **options)


def test_integers_are_refused():
    with pytest.raises(TensorError, match=r"x is of torch.int64: convert it, as x.float\(\)"):
        distance_correlation(torch.ones(4, 1, dtype=torch.int64), torch.ones(4, 1))


@pytest.mark.parametrize("kind", [lambda generator: generator, noise_source])
def test_of_many_rows_some_are_drawn_where_there_is_randomness(kind, monkeypatch):
    monkeypatch.setattr("tacit.audit.dependence.EXACT_ROWS", 16)
    x, z = rows(3, 64)
    z.requires_grad_()
    one, same, other = (
        distance_correlation(x, z, noise=kind(torch.Generator().manual_seed(seed))) for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    one.backward()
    drawn = z.grad.abs().sum(1) > 0
    assert int(drawn.sum()) == 16
    assert torch.allclose(one, distance_correlation(x[drawn], z[drawn]))
    assert torch.equal(
        distance_correlation(x[:16], z[:16], noise=kind(torch.Generator())), distance_correlation(x[:16], z[:16])
    )
    assert not torch.equal(distance_correlation(x, z), one), "without randomness all of them are looked at"
