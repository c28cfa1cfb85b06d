"""The papers' Wide&Deep network for tables, cut after any layer of its deep part.

The feature party holds the embedding table and the first ReLU layers; the label party holds the other layers, the
logit and, if it has features of its own, the wide part: an embedding of width 1 for each category, joined with the
numbers, through one linear function with a bias. The two logits are added. `RowwiseAdam` is Adam for its large tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam as torch_adam

from tacit.arguments import count
from tacit.errors import TensorError, UsageError
from tacit.split.models.layers import (
    Columns,
    Layered,
    columns,
    glorot_linear,
    one_or_many,
    relu_layers,
    same_rows,
    shaped,
)


class WideDeepBottom(Layered):
    """The feature party's half: `inputs` (the table and the numbers), then `layer1` to the cut.

    >>> bottom = WideDeepBottom([10, 7], 3)
    >>> bottom.layer_names()
    ['layer1', 'layer2', 'layer3']
    """

    def __init__(
        self,
        cardinalities: Sequence[int],
        numeric: int,
        *,
        cut: int = 3,
        width: int = 128,
        embedding: int = 4,
        sparse: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        count("cut", cut)
        count("width", width)
        inputs = Columns(cardinalities, numeric, embedding, sparse=sparse, generator=generator)
        super().__init__(relu_layers([inputs.width, *[width] * cut], generator))
        self.inputs = inputs

    def forward(self, categorical: Tensor | None = None, numeric: Tensor | None = None) -> Tensor:
        """Codes (batch, c) and numbers (batch, m) to the cut (batch, width); leave out what the table has not."""
        return self.run(self.inputs(categorical, numeric))


class WideDeepTop(Layered):
    """The label party's half: the layers after the cut, `logit`, and `wide` where it has features of its own.

    It needs to know nothing about the feature party's columns.

    >>> WideDeepTop(cut=6)(torch.zeros(2, 128)).shape
    torch.Size([2])
    """

    def __init__(
        self,
        *,
        cut: int = 3,
        layers: int = 6,
        width: int = 128,
        own_cardinalities: Sequence[int] = (),
        own_numeric: int = 0,
        logits: int = 1,
        sparse: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        count("cut", cut, high=count("layers", layers))
        count("width", width)
        count("logits", logits)
        super().__init__(relu_layers([width] * (layers - cut + 1), generator), first=cut + 1)
        self.width = width
        self.logit = glorot_linear(width, logits, generator)
        self.own: Columns | None = None
        if len(own_cardinalities) or own_numeric:
            self.own = Columns(
                own_cardinalities, own_numeric, embedding=1, sparse=sparse, prefix="own_", generator=generator
            )
            self.wide = glorot_linear(self.own.width, logits, generator)

    def forward(self, z: Tensor, own_categorical: Tensor | None = None, own_numeric: Tensor | None = None) -> Tensor:
        """The cut (batch, width) and the label party's own columns to logits (batch,) or (batch, classes)."""
        logits = self.logit(self.run(shaped("z", z, (self.width,))))  # (batch, logits)
        if self.own is None:
            columns("own_categorical", own_categorical, 0)
            columns("own_numeric", own_numeric, 0)
        else:
            own = self.own(own_categorical, own_numeric)  # (batch, own columns)
            same_rows(z=z, own=own)
            logits = logits + self.wide(own)
        return one_or_many(logits)


def wide_deep(  # a public entry point: each setting of the network by name
    cardinalities: Sequence[int],
    numeric: int,
    *,
    own_cardinalities: Sequence[int] = (),
    own_numeric: int = 0,
    cut: int = 3,
    layers: int = 6,
    width: int = 128,
    embedding: int = 4,
    logits: int = 1,
    sparse: bool = False,
    generator: torch.Generator | None = None,
) -> tuple[WideDeepBottom, WideDeepTop]:
    """Both halves of a Wide&Deep network; the defaults are the papers' network for Criteo and Avazu.

    The older papers' networks: `cut=4, layers=4` (the top's deep part is only a logit) and `cut=2, layers=4`. With one
    generator the halves together are the same network for every `cut`. The arguments are those of `WideDeepBottom` and
    `WideDeepTop`.

    >>> bottom, top = wide_deep([10, 7], 3, own_numeric=2)
    >>> z = bottom(torch.zeros(4, 2, dtype=torch.int64), torch.zeros(4, 3))
    >>> z.shape, top(z, None, torch.zeros(4, 2)).shape
    (torch.Size([4, 128]), torch.Size([4]))
    """
    count("cut", cut, high=count("layers", layers))
    bottom = WideDeepBottom(
        cardinalities, numeric, cut=cut, width=width, embedding=embedding, sparse=sparse, generator=generator
    )
    top = WideDeepTop(
        cut=cut, layers=layers, width=width, own_cardinalities=own_cardinalities, own_numeric=own_numeric,
        logits=logits, sparse=sparse, generator=generator,
    )  # fmt: skip
    return bottom, top


# --- Adam: dense parameters as in torch, sparse gradients row by row -------------------------------------------------


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
