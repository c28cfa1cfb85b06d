"""The exact solution of Marvell's four-variable problem (Li 2022, theorem 2).

With u and v the variances of the negative and the positive class, D the squared distance of their means and p the
share of positives, the problem asks for the noise of a given power that minimises the sum of the two KL divergences.
The class with the smaller variance is called the quiet one, the other the loud one. Three facts reduce the problem to
one equation in one unknown:

- across the line of the means the loud class gets no noise;
- for a given power t along that line, its split x (quiet) and y (loud) is a closed form;
- the price of power along the line fixes the noise z of the quiet class in each other direction.

The formula is in `_formula`. It serves Python floats (one problem on a CPU, some tens of microseconds) and tensors (a
stack of problems, on any device, without waiting for the device).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from tacit.errors import TensorError, UsageError
from tacit.split.protect.gradient._base import fused
from tacit.split.protect.gradient._formula import TINY, Floats, Problem, Tensors, allocate, problem, spent, sum_kl_of

Number = TypeVar("Number", float, Tensor)

SETTLED = 2e-14  # the relative error at which one problem counts as solved
STEPS = 48  # enough for every bracket that any input can give: 40 were, on millions of problems
PARTS, SECTIONS = 128, 8  # into which a bracket is divided at once, and how often: 56 bits of it


class Solution(NamedTuple, Generic[Number]):
    """Variances of the optimal noise, along the line that joins the class means and in each direction across it."""

    along_neg: Number  # the noise of the negative class along the line
    across_neg: Number  # the noise of the negative class in each other direction
    along_pos: Number  # the noise of the positive class along the line
    across_pos: Number  # the noise of the positive class in each other direction
    sum_kl: Number  # the sum of both KL divergences that this noise leaves, under the isotropic Gaussian model
    power: Number  # what the noise costs, p tr(N_pos) + (1 - p) tr(N_neg)


Excess = Callable[[Any, Any, Problem], Any]  # how far a t is above the one that is looked for


class _Search(NamedTuple):
    """A bracket of the logarithm of t, by Chandrupatla's method (1997)."""

    new: Any  # the newest point and the function there
    f_new: Any
    end: Any  # the other end of the bracket
    f_end: Any
    best: Any  # the point that came nearest so far, and how near
    nearest: Any
    share: Any  # where to look next, as a share of the way from the newest point to the other end


def _narrow(excess: Excess, search: _Search, target: Any, a: Problem) -> _Search:
    """One step: an inverse quadratic one where that can be trusted, half of the bracket where not."""
    ops = a.ops
    new = search.new + search.share * (search.end - search.new)
    f_new = excess(new, target, a)
    nearer = abs(f_new) < search.nearest
    same = (f_new < 0) == (search.f_new < 0)  # the new point replaces the last one; else that becomes the other end
    old, f_old = ops.where(same, search.new, search.end), ops.where(same, search.f_new, search.f_end)
    end, f_end = ops.where(same, search.end, search.new), ops.where(same, search.f_end, search.f_new)
    return _Search(
        new, f_new, end, f_end, ops.where(nearer, new, search.best), ops.where(nearer, abs(f_new), search.nearest),
        _next_share(new, end, old, f_new, f_end, f_old, ops),
    )  # fmt: skip


def _next_share(a: Any, b: Any, c: Any, fa: Any, fb: Any, fc: Any, ops: Any) -> Any:
    """Chandrupatla's rule: the inverse quadratic step through three points, or one half."""
    half = 0.0 * fa + 0.5
    far, rise, turn = c - b, fc - fb, fc - fa
    usable = (far != 0) & (rise != 0) & (turn != 0) & (a != b)
    far, rise = ops.where(usable, far, half), ops.where(usable, rise, half)
    turn, step = ops.where(usable, turn, half), ops.where(usable, b - a, half)
    drop = ops.where(usable, fb - fa, half)
    xi, phi = (a - b) / far, (fa - fb) / rise
    trusted = usable & (phi * phi < xi) & ((1 - phi) * (1 - phi) < 1 - xi)
    quadratic = -(fa / drop) * (fc / rise) + (c - a) / step * (fa / turn) * (fb / rise)
    return ops.where(trusted & (quadratic > 1e-9) & (quadratic < 1 - 1e-9), quadratic, half)


def _excess_power(log_t: Any, power: Any, a: Problem) -> Any:
    return a.ops.log(spent(a.ops.exp(log_t), a) / power)


def _excess_leak(log_t: Any, sum_kl: Any, a: Problem) -> Any:
    return a.ops.log(sum_kl / a.ops.maximum(sum_kl_of(a.ops.exp(log_t), a), TINY))


def _bounds_for_power(power: Any, a: Problem) -> tuple[Any, Any]:
    """t lies between power/d and power, because the noise across never exceeds the noise along."""
    return power / (a.others + 1) * (1 - 1e-9), power * (1 + 1e-9)


def _known_for_power(power: Any, a: Problem) -> tuple[Any, Any]:
    """Whether t is known without a search, and its value: the equation is linear where one class gets nothing along."""
    ops = a.ops
    linear = (power + a.others * a.q * a.u * a.lose) / (1 + a.others * a.keep)
    linear = ops.where(linear < power, linear, power)
    no_loud = allocate(linear, a)[3]
    no_quiet = allocate(power, a)[4]
    return no_loud | no_quiet | (a.others == 0), ops.where(no_loud, linear, power)


def _bounds_for_leak(sum_kl: Any, a: Problem) -> tuple[Any, Any]:
    """Powers t along the line that leave too much and too little, from simple bounds of sumKL."""
    ops = a.ops
    quarter = ops.sqrt(ops.sqrt((a.others + 1) / sum_kl))
    high = 4 * (3 * a.v + 4 * a.gap * (1 + 1 / sum_kl) + 3 * ops.sqrt(a.v * a.gap) * quarter) + TINY
    floor_x = ops.maximum(a.gap / (2 * sum_kl) - a.u, 0.0)  # because sumKL is at least D / 2X
    floor_y = ops.maximum(a.v / (2 * sum_kl + 2) - a.u, 0.0)  # because sumKL is at least Y / 2X - 1
    return a.q * (floor_x + floor_y) / 4 + 1e-18 * a.q * a.u + TINY, high


def _known_for_leak(sum_kl: Any, a: Problem) -> tuple[Any, Any]:
    """No noise at all where sumKL is low enough already."""
    nothing = 0.0 * a.u
    return sum_kl_of(nothing, a) <= sum_kl, nothing


class _Kind(NamedTuple):
    """The two ways to pose the problem."""

    excess: Excess
    bounds: Callable[[Any, Problem], tuple[Any, Any]]
    known: Callable[[Any, Problem], tuple[Any, Any]]


_KINDS = {
    "power": _Kind(_excess_power, _bounds_for_power, _known_for_power),
    "sum_kl": _Kind(_excess_leak, _bounds_for_leak, _known_for_leak),
}


def _open(by: str, goal: Any, a: Problem) -> _Search:
    low, high = (a.ops.log(bound) for bound in _KINDS[by].bounds(goal, a))
    f_low, f_high = _KINDS[by].excess(low, goal, a), _KINDS[by].excess(high, goal, a)
    nearer = abs(f_low) < abs(f_high)
    best, nearest = a.ops.where(nearer, low, high), a.ops.where(nearer, abs(f_low), abs(f_high))
    return _Search(low, f_low, high, f_high, best, nearest, 0.0 * f_low + 0.5)


def _begin(given: tuple[Any, ...], by: str, ops: Any) -> tuple[Any, ...]:
    """The problem in its own units, and whether and how t is known without a search."""
    u, v, d, gap, p, target = given
    swap = u > v
    scale = ops.maximum(ops.where(u > v, u, v), gap) if ops is Floats else torch.maximum(torch.maximum(u, v), gap)
    scale = ops.power_of_two(ops.where(scale > 0, scale, 0.0 * scale + 1.0))  # dividing by it does not round v - u
    a = problem(u / scale, v / scale, p, gap / scale, d, ops)
    goal = ops.maximum(target / scale, TINY) if by == "power" else target
    known, t = _KINDS[by].known(goal, a)
    if by == "power":
        known, t = known | (target <= 0), ops.where(target > 0, t, 0.0 * t)
    return a, swap, scale, goal, known, t


def _begin_search(given: tuple[Any, ...], by: str, ops: Any) -> tuple[Any, ...]:
    """The same, and a bracket for the problems where t is not known."""
    a, *rest = _begin(given, by, ops)
    return a, *rest, _open(by, rest[2], a)


def _finish(swap: Any, scale: Any, known: Any, t: Any, found: Any, a: Problem) -> Solution[Any]:
    ops = a.ops
    t = ops.where(known, t, ops.exp(found))
    x, y, z, _, _ = allocate(t, a)
    nothing = 0.0 * z
    return Solution(
        along_neg=ops.where(swap, y, x) * scale,
        across_neg=ops.where(swap, nothing, z) * scale,
        along_pos=ops.where(swap, x, y) * scale,
        across_pos=ops.where(swap, z, nothing) * scale,
        sum_kl=sum_kl_of(t, a),
        power=(t + a.others * a.q * z) * scale,
    )


def _solve_floats(given: tuple[Any, ...], by: str) -> Solution[Any]:
    """One problem: stop as soon as it is solved."""
    a, swap, scale, goal, known, t = _begin(given, by, Floats)
    found = 0.0
    if not known:
        search = _open(by, goal, a)
        for _ in range(STEPS):
            search = _narrow(_KINDS[by].excess, search, goal, a)
            if search.nearest < SETTLED:
                break
        found = search.best
    return _finish(swap, scale, known, t, found, a)


def _solve_tensors(given: tuple[Any, ...], by: str) -> Solution[Any]:
    """A stack of problems: always the same number of steps, so that nothing has to be read back from a device."""
    begin, search, finish = _stages(given[0].device.type)
    a, swap, scale, goal, known, t, bracket = begin(given, by, Tensors)
    done: Solution[Any] = finish(swap, scale, known, t, search(_KINDS[by].excess, bracket, goal, a), a)
    return done


def _by_steps(excess: Excess, search: _Search, goal: Tensor, a: Problem) -> Any:
    """The root by few evaluations, one after the other."""
    for _ in range(STEPS):
        search = _narrow(excess, search, goal, a)
    return search.best


def _by_sections(excess: Excess, search: _Search, goal: Tensor, a: Problem) -> Any:
    """The root by few steps of many evaluations at once: CUDA waits for the steps and has room for the evaluations."""
    low, width = search.new, search.end - search.new
    for _ in range(SECTIONS):
        low, width = _section(excess, low, width, goal, a)
    return low + width / 2


@fused
def _section(excess: Excess, low: Tensor, width: Tensor, goal: Tensor, a: Problem) -> tuple[Tensor, Tensor]:
    """Where the part of a bracket begins that holds the root, and how wide it is."""
    each = Problem(*(x[..., None] if isinstance(x, Tensor) else x for x in a))
    shares = torch.arange(1, PARTS, dtype=low.dtype, device=low.device) / PARTS
    points = low[..., None] + width[..., None] * shares  # (..., parts - 1)
    below = (excess(points, goal[..., None], each) < 0).sum(-1)
    return low + width * below / PARTS, width / PARTS


@functools.cache
def _stages(device: str) -> tuple[Callable[..., Any], ...]:
    """The three stages of a solution; on CUDA compiled, each into a kernel or a few, instead of some thousand."""
    if device == "cuda":
        return torch.compile(_begin_search), _by_sections, torch.compile(_finish)
    return _begin_search, _by_steps, _finish


def solve(
    u: Number,
    v: Number,
    d: Number | int,
    gap: Number,
    p: Number,
    *,
    power: Number | float | None = None,
    sum_kl: Number | float | None = None,
) -> Solution[Number]:
    """Solve Marvell's four-variable problem exactly, for one problem or a stack of them.

    Args:
        u: variance of the negative class in each coordinate.
        v: variance of the positive class in each coordinate.
        d: number of coordinates.
        gap: squared distance D of the two class means.
        p: share of positives, between 0 and 1.
        power: spend exactly this much noise power, or
        sum_kl: spend as little as brings the sum of both KL divergences down to this.

    Returns:
        Floats for floats; tensors of float64 on the inputs' device if any of u, v, gap and p is a tensor.

    >>> round(solve(1.0, 2.0, 128, 4.0, 0.25, power=16.0).power, 9)
    16.0
    >>> round(solve(1.0, 2.0, 128, 4.0, 0.25, sum_kl=0.16).sum_kl, 9)
    0.16
    """
    if (power is None) == (sum_kl is None):
        raise UsageError(
            "solve() takes one of power= and sum_kl=: say how much noise to add, or how much leak to leave"
        )
    by = "power" if sum_kl is None else "sum_kl"
    given: dict[str, Any] = {"u": u, "v": v, "d": d, "gap": gap, "p": p, by: power if sum_kl is None else sum_kl}
    devices = [value.device for value in given.values() if isinstance(value, Tensor)]
    if not devices:
        given = {name: float(value) for name, value in given.items()}
        _check(given)
        return _solve_floats(tuple(given.values()), by)
    stack = {name: _tensor(value, devices[0]) for name, value in given.items() if name != "d" or isinstance(d, Tensor)}
    given = {**given, **dict(zip(stack, torch.broadcast_tensors(*stack.values()), strict=True))}
    if devices[0].type == "cpu":
        _check(given)
    return _solve_tensors(tuple(given.values()), by)


def _tensor(value: Tensor | float, device: torch.device) -> Tensor:
    if isinstance(value, Tensor):
        return value.to(dtype=torch.float64, device=device)
    return torch.full((), value, dtype=torch.float64, device=device)  # filled there: a copy would wait


def _check(given: dict[str, Any]) -> None:
    """Refuse what the problem is not defined for, naming the argument."""
    allowed: dict[str, tuple[Callable[[Any], Any], str]] = {
        "u": (lambda a: a >= 0, "a variance, so at least 0"),
        "v": (lambda a: a >= 0, "a variance, so at least 0"),
        "d": (lambda a: a >= 1, "a number of coordinates, so at least 1"),
        "gap": (lambda a: a >= 0, "a squared distance, so at least 0"),
        "p": (lambda a: (a > 0) & (a < 1), "a share of positives, so between 0 and 1, both excluded"),
        "power": (lambda a: a >= 0, "a noise power, so at least 0"),
        "sum_kl": (lambda a: a > 0, "a divergence that finite noise can reach, so above 0"),
    }
    for name, value in given.items():
        test, meaning = allowed[name]
        if isinstance(value, Tensor):
            if not bool((test(value) & torch.isfinite(value)).all()):
                raise TensorError(f"solve(): some {name} is out of range; it is {meaning}, and finite")
        elif not (math.isfinite(value) and test(value)):
            raise UsageError(f"solve(): {name} = {value} is out of range; it is {meaning}, and finite")
