"""Adam for networks with large embedding tables: dense parameters as in torch, sparse gradients row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam as torch_adam

from tacit.errors import TensorError, UsageError


class RowwiseAdam(torch.optim.Optimizer):
    """Adam that leaves alone the rows of a table that a batch did not touch.

    A parameter with a dense gradient is updated as by `torch.optim.Adam`, bit for bit. A parameter with a sparse
    gradient (an `nn.Embedding` with `sparse=True`) is updated only in the rows that the gradient names; other rows and
    their averages stay as they are, where torch's Adam would decay and move them. Where every row is touched at every
    step both are the same. `torch.optim.SparseAdam` is not: it adds eps before the correction of the second average, so
    with gradients near eps, which large batches have, its first steps are up to several times smaller.

    The state has the names and shapes of `torch.optim.Adam`. The fused kernel is not offered: on the CPU it changes
    weights without telling autograd, and a backward pass that is still to come would use the wrong ones.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        if not (lr > 0 and math.isfinite(lr)):
            raise UsageError(f"lr must be positive, not {lr}")
        if not all(0 <= beta < 1 for beta in betas):
            raise UsageError(f"betas must be in [0, 1), not {betas}")
        if not eps > 0:
            raise UsageError(f"eps must be positive, not {eps}")
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            live = [p for p in group["params"] if p.grad is not None]
            for p in live:
                if not self.state[p]:
                    self.state[p].update(step=torch.tensor(0.0), exp_avg=_zeros(p), exp_avg_sq=_zeros(p))
            self._update_dense([p for p in live if not p.grad.is_sparse], group)
            for p in live:
                if p.grad.is_sparse:
                    self._update_rows(p, group)
        return loss

    def _update_dense(self, params: list[Tensor], group: dict[str, Any]) -> None:
        states = [self.state[p] for p in params]
        torch_adam(
            params, [p.grad for p in params if p.grad is not None], [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states], [], [state["step"] for state in states], amsgrad=False,
            beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"], weight_decay=0.0, eps=group["eps"],
            maximize=False,
        )  # fmt: skip

    def _update_rows(self, param: Tensor, group: dict[str, Any]) -> None:
        assert param.grad is not None
        if param.grad.sparse_dim() != 1:
            raise TensorError(f"a sparse gradient must name rows, not entries of {param.grad.sparse_dim()} dimensions")
        state, (beta1, beta2) = self.state[param], group["betas"]
        grad = param.grad.coalesce()
        rows, g = grad.indices()[0], grad.values()  # (touched,), (touched, *row)
        state["step"] += 1
        step = state["step"].item()
        first = state["exp_avg"][rows].lerp_(g, 1 - beta1)
        second = state["exp_avg_sq"][rows].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        state["exp_avg"][rows] = first
        state["exp_avg_sq"][rows] = second
        scale = second.sqrt_().div_(math.sqrt(1 - beta2**step)).add_(group["eps"])
        param[rows] = param[rows].addcdiv_(first, scale, value=-group["lr"] / (1 - beta1**step))


def adam(
    module: nn.Module, lr: float = 1e-3, *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> RowwiseAdam:
    """Adam for a network; tables with sparse gradients are updated row by row, see `RowwiseAdam`.

    >>> table = nn.Embedding(1000, 4, sparse=True)
    >>> optimizer = adam(table)
    >>> before = table.weight.detach().clone()
    >>> table(torch.tensor([3, 7])).sum().backward()
    >>> optimizer.step()
    >>> (table.weight != before).any(dim=1).nonzero().flatten().tolist()
    [3, 7]
    """
    params = [p for p in module.parameters() if p.requires_grad]
    if not params:
        raise UsageError(f"{type(module).__name__} has no parameter to train")
    return RowwiseAdam(params, lr, betas=betas, eps=eps)


def _zeros(param: Tensor) -> Tensor:
    return torch.zeros_like(param, memory_format=torch.preserve_format)
