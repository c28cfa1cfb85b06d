"""No protection, for comparison: the gradient as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.contracts import Noise, NoiseSource, Protected
from tacit.split.protect.facts import Facts
from tacit.split.protect.gradient._base import Batch, Drawn, GradientProtection, check_shapes, raise_invalid

FACTS = Facts()


@dataclass(frozen=True)
class None_(GradientProtection):  # noqa: N801 (None is taken)
    """See `none`."""

    def update(
        self, grad: Tensor, labels: Tensor, state: Any, noise: Noise, embedding: Tensor | None = None
    ) -> Protected:
        """A copy, bit for bit. Labels of any kind will do: they are not looked at."""
        check_shapes(grad, labels)
        each = grad.detach().flatten(start_dim=labels.ndim - 1)  # (stack, *) or (*)
        valid = torch.isfinite(each.amax(-1)) & torch.isfinite(each.amin(-1))
        if grad.device.type == "cpu" and not bool(valid.all()):
            raise_invalid(grad, torch.zeros_like(labels))
        rows = torch.full_like(valid, labels.shape[-1], dtype=torch.float32)
        report = {"power": torch.zeros_like(rows, dtype=torch.float64), "untouched_rows": rows, "valid": valid}
        return Protected(grad.detach().clone(), state, self.event, report)

    def __call__(self, grad: Tensor, labels: Tensor, noise: Noise, embedding: Tensor | None = None) -> Protected:
        """As for every protection, and labels of any kind will do."""
        check_shapes(grad, labels)
        return super().__call__(grad, torch.zeros_like(labels), noise, embedding)

    def draw(self, batch: Batch, state: Any, source: NoiseSource) -> Drawn:
        """Never asked: there is no noise to draw."""
        raise AssertionError("none() draws no noise")


def none() -> GradientProtection:
    """The bare gradient, which tells labels outright.

    >>> protected = none()(torch.ones(2, 3), torch.tensor([0, 1]), torch.Generator())
    >>> protected.value.tolist(), protected.report["untouched_rows"].item()
    ([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], 2.0)
    """
    return None_()
