"""Every gradient protection with the options that the contract suite tries, and batches for them."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tacit.contracts import Protection
from tacit.split.protect import gradient
from tacit.split.protect.gradient import chain

CUDA = torch.cuda.is_available()
DEVICES = ["cpu", *(["cuda"] if CUDA else [])]
QUIET = [  # what torch itself says on a device, when it compiles and when it looks for waiting
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]

# Mild, strong and every spelling of the strength; of a protection that is not listed here, the ends of its sweeps.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "clip": [{"norm": 2.0}, {"norm": 0.01}],
    "iso": [{"t": 0.01}, {"t": 25.0}],
    "marvell": [
        {"scale": 0.1},
        {"scale": 40.0, "warmup": 0},
        {"sum_kl": 0.01},
        {"detection_error": 0.45},
        {"leak_auc": 0.7},
    ],
    "matched": [{"scale": 1.0}, {"leak_auc": 0.9, "warmup": 1}, {"leak_auc": 0.55, "visits": 15}],
    "max_norm": [{}],
    "none": [{}],
}
# By their own formulas; their reports count the rows.
MAY_LEAVE_ROWS = {"none", "clip", "max_norm", "marvell"}
BLIND = {"none"}  # does not look at labels at all


@dataclass(frozen=True)
class Case:
    """A protection with options, or a chain of such."""

    parts: tuple[tuple[str, dict[str, Any]], ...]

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.parts}

    def make(self) -> Protection:
        made = [gradient.protection(name, **options) for name, options in self.parts]
        return made[0] if len(made) == 1 else chain(*made)

    def __str__(self) -> str:
        return "+".join(f"{name}({','.join(f'{k}={v}' for k, v in options.items())})" for name, options in self.parts)


def usual(name: str) -> list[dict[str, Any]]:
    """The mild and the strong end of every spelling of a strength."""
    known = gradient.facts(name).strengths
    return [{option.name: end} for option in known for end in option.sweep or ()] or [{}]


CASES = [Case(((name, options),)) for name in gradient.names() for options in OPTIONS.get(name) or usual(name)]
CASES += [
    Case((("clip", {"norm": 0.5}), ("marvell", {"leak_auc": 0.6}))),
    Case((("iso", {"t": 1.0}), ("matched", {"leak_auc": 0.6, "visits": 2}))),
]
every = pytest.mark.parametrize("case", CASES, ids=str)
on_every_device = pytest.mark.parametrize("device", DEVICES)


# --- batches, noise and states ---------------------------------------------------------------------------------------


def generator(seed: int = 7, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def batch(
    seed: int = 0,
    size: int = 24,
    cut: tuple[int, ...] = (6,),
    *,
    stack: int | None = None,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
) -> tuple[Tensor, Tensor]:
    """Gradients (p - y) times a direction with some spread, of both classes where there are two rows."""
    g = generator(seed)
    lead = (size,) if stack is None else (stack, size)
    labels = (torch.arange(size) % 3 == 0).long().expand(lead).clone()
    p = torch.rand(*lead, generator=g, dtype=torch.float64)
    direction = torch.randn(*cut, generator=g, dtype=torch.float64)
    spread = torch.randn(*lead, *cut, generator=g, dtype=torch.float64)
    each = (p - labels).reshape(*lead, *[1] * len(cut))
    return (each * (direction + 0.4 * spread)).to(dtype).to(device), labels.to(device)


def in_a_run(protection: Protection, steps: int, device: str = "cpu", **kind: Any) -> Any:
    """The state after some ordinary steps."""
    state = protection.init()
    for step in range(steps):
        state = protection.update(*batch(100 + step, device=device, **kind), state, generator(200 + step, device)).state
    return state
