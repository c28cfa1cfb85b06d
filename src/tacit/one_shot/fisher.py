"""What Gaussian noise behind a smooth bottom hides of numbers from every unbiased decoder: a bound by Cramer and Rao.

The Fisher information of a row's numbers in its noised embedding is J'J / scale^2, J being the bottom's slope (Hannun,
Guo and van der Maaten 2021); its mean diagonal is the dFIL of Maeng, Guo, Kariyappa and Suh (2023). The inverse of a
single column's entry bounds the error of any unbiased decoder of it, even of one that knows all other columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tacit.align.encoder import Columns, Inputs
from tacit.errors import UsageError

_ROWS = 4096  # the first ones, over which it is the mean


def fisher_bound(bottom: nn.Module, inputs: Inputs, columns: Columns, scale: float | Tensor) -> dict[str, float]:
    """For each numeric column the least squared error of unbiased decoders, a mean over rows, in units of its variance.

    The embedding gets Gaussian noise before it is ranked and sent; ranks take nothing back. The bottom is called with
    codes and numbers, and differentiable in the numbers; `scale` is the noise's standard deviation, one for all or one
    for each number of the embedding. It is no bound for decoders that use what they know of other rows (those are
    biased, and the audit measures them), and no word about categories. At 1 and above, an unbiased decoder is no better
    than the mean.
    """
    if not isinstance(bottom, nn.Module):
        raise UsageError(
            f"the Fisher bound is for smooth bottoms, and a {type(bottom).__name__} is none: the score of trees has no "
            "slope, and its steps give rows away; rely on the audit there"
        )
    if not inputs.numeric.shape[1]:
        raise UsageError("the Fisher bound is for numbers, and these rows have none: for categories rely on the audit")
    spread = torch.as_tensor(scale, dtype=torch.float32)
    if not bool((torch.isfinite(spread) & (spread > 0)).all()):
        raise UsageError(f"the Fisher bound needs noise: scale is {scale}, pass positive numbers")
    error = 1 / _information(bottom, inputs[slice(0, _ROWS)], spread).clamp_min(1e-12)
    return dict(zip((*columns.numeric, *columns.flagged), error.mean(0).tolist(), strict=True))


def _information(bottom: nn.Module, inputs: Inputs, spread: Tensor) -> Tensor:
    """The diagonal of each row's Fisher information.  (rows, numeric columns) float64"""
    x = inputs.numeric.detach().clone().requires_grad_()
    training = bottom.training
    bottom.eval()  # a row's embedding must not depend on other rows
    try:
        with torch.enable_grad():
            z = bottom(inputs.categorical, x)
            if not isinstance(z, Tensor) or not z.requires_grad:
                raise UsageError("the bottom's embedding has no slope in its numbers: rely on the audit for this one")
            z = z.flatten(1) / spread
            total = torch.zeros(x.shape, dtype=torch.float64)
            for place in range(z.shape[1]):
                (slope,) = torch.autograd.grad(z[:, place].sum(), x, retain_graph=True)
                total += slope.double().square()
    finally:
        bottom.train(training)
    return total
