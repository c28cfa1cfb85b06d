"""A party's half of the model, from its settings: Wide&Deep for its columns, or what the party's own function makes."""

from __future__ import annotations

import inspect
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.align.tables import Inputs
from tacit.company.factories import load_factory
from tacit.config import LEARNING_RATES, Contract, Party
from tacit.errors import TensorError, UsageError
from tacit.split.models import WideDeepBottom, WideDeepTop, adam
from tacit.split.models.layers import glorot_linear
from tacit.split.tensors import evaluating

_LAYERS = 3  # in each half, as in the papers
_EMBEDDING = 4


@dataclass(frozen=True)
class Half:
    """What a factory is told about the half that it has to make.

    A bottom is called as `bottom(categorical, numeric)` and gives (batch, *cuts[0]); a top is called as
    `top(z1, ..., categorical, numeric)`, one z for each feature party in the order of their names, and gives (batch,)
    for one logit, else (batch, logits). Weights that torch draws by itself follow the party's seed.
    """

    role: str  # "features" for a bottom, "label" for a top
    cardinalities: tuple[int, ...]  # for each of the party's own categorical columns the number of its codes
    numeric: int  # the number of its own numeric columns, flags included
    # the shape of a row of each embedding: of its own one, or of those of all feature parties
    cuts: tuple[tuple[int, ...], ...]
    logits: int  # of a top; 1 for the loss "binary"


class Joined(nn.Module):
    """A top for several embeddings: they are laid side by side, and one ReLU layer makes them as wide as the top.

    >>> top = Joined(WideDeepTop(width=16), cuts=[(8,), (2, 4)], width=16)
    >>> top(torch.zeros(5, 8), torch.zeros(5, 2, 4)).shape
    torch.Size([5])
    """

    def __init__(
        self, top: nn.Module, cuts: Sequence[Sequence[int]], width: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.cuts = [tuple(cut) for cut in cuts]
        self.join = glorot_linear(sum(math.prod(cut) for cut in self.cuts), width, generator)
        self.top = top

    def forward(self, *inputs: Tensor) -> Tensor:
        """Embeddings, one for each cut, then the party's own features, to logits."""
        embeddings, own = inputs[: len(self.cuts)], inputs[len(self.cuts) :]
        for place, (z, cut) in enumerate(zip(embeddings, self.cuts, strict=True)):
            if tuple(z.shape[1:]) != cut:
                raise TensorError(f"embedding {place + 1} has rows of {tuple(z.shape[1:])}, the contract says {cut}")
        flat = torch.cat([z.flatten(1) for z in embeddings], dim=1)  # (batch, all widths)
        logits: Tensor = self.top(torch.relu(self.join(flat)), *own)
        return logits


def first_seed(config: Party) -> int:
    """The seed of the first weights: the one in the settings, else a fresh one, which the caller writes down."""
    return secrets.randbits(63) if config.training.seed is None else config.training.seed


def build(
    folder: str | os.PathLike[str],
    config: Party,
    contract: Contract,
    inputs: Inputs,
    *,
    seed: int | None = None,
    classes: int = 2,
) -> nn.Module:
    """The party's half of the model, tried out on two rows before training starts."""
    half = describe(config, contract, inputs, classes)
    seed = first_seed(config) if seed is None else seed
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if config.model.factory is not None:
            module = _from_factory(Path(folder), config.model.factory, half)
        else:
            module = _wide_deep(config, half, torch.Generator().manual_seed(seed))
        try_out(module, half, inputs.tensors)
    return module


def optimizer(module: nn.Module, config: Party) -> torch.optim.Optimizer:
    """The optimizer of the settings: Adam (tables with sparse gradients row by row) or plain gradient descent."""
    rate = config.training.learning_rate or LEARNING_RATES[config.role]
    if config.training.optimizer == "adam":
        return adam(module, lr=rate)
    params = [p for p in module.parameters() if p.requires_grad]
    if not params:
        raise UsageError(f"{type(module).__name__} has no parameter to train")
    return torch.optim.SGD(params, lr=rate)


def cuts_of(contract: Contract, parties: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The shape of a row of each of these parties' embeddings."""
    return tuple(contract.cut.widths[name] for name in parties)


def describe(config: Party, contract: Contract, inputs: Inputs, classes: int) -> Half:
    """What this party's half has to be."""
    cuts = cuts_of(contract, contract.feature_parties if config.role == "label" else (config.name,))
    logits = 1 if contract.loss == "binary" else max(2, classes)
    return Half(config.role, inputs.cardinalities, inputs.numeric.shape[1], cuts, logits)


# --- ours ------------------------------------------------------------------------------------------------------------


def _wide_deep(config: Party, half: Half, generator: torch.Generator) -> nn.Module:
    layers = _LAYERS if config.model.layers is None else config.model.layers
    sparse = bool(config.model.sparse)
    if half.role == "label":
        width = max(math.prod(cut) for cut in half.cuts)
        top = WideDeepTop(
            cut=_LAYERS, layers=_LAYERS + layers, width=width, own_cardinalities=half.cardinalities,
            own_numeric=half.numeric, logits=half.logits, sparse=sparse, generator=generator,
        )  # fmt: skip
        plain = len(half.cuts) == 1 and len(half.cuts[0]) == 1
        return top if plain else Joined(top, half.cuts, width, generator)
    if len(half.cuts[0]) != 1:
        raise UsageError(
            f"the contract's cut for this party is {list(half.cuts[0])}, and wide_deep gives rows of one width: agree "
            "on one number under [cut] widths, or bring a model of your own with [model] factory"
        )
    return WideDeepBottom(
        half.cardinalities, half.numeric, cut=layers, width=half.cuts[0][0],
        embedding=config.model.embedding or _EMBEDDING, sparse=sparse, generator=generator,
    )  # fmt: skip


# --- the party's own -------------------------------------------------------------------------------------------------


def _from_factory(folder: Path, factory: str, half: Half) -> nn.Module:
    """Call the party's function and check that it is one that takes a `Half` and gives a module."""
    function, name = load_factory(folder, factory), factory.rpartition(":")[2]
    try:
        inspect.signature(function).bind(half)
    except TypeError as error:
        raise UsageError(
            f"[model] factory = {factory!r}: {name}{inspect.signature(function)} can't be called with the description "
            f"of the half alone ({error}): write it as def {name}(half)"
        ) from None
    made = function(half)
    if not isinstance(made, nn.Module):
        raise UsageError(
            f"[model] factory = {factory!r}: {name} gave a {type(made).__name__}, not an nn.Module: return the module"
        )
    return made


def try_out(module: nn.Module, half: Half, own: Sequence[Tensor], device: torch.device | None = None) -> None:
    """Two rows through a half of the model, so that a wrong shape is told now and not by the peer."""
    own = [tensor[:2] for tensor in own]
    rows = len(own[0]) if own else 2
    if half.role == "features":
        what, inputs, wanted = "bottom", own, [(rows, *half.cuts[0])]
    else:
        what, inputs = "top", [*(torch.zeros(rows, *cut, device=device) for cut in half.cuts), *own]
        wanted = [(rows,), (rows, 1)] if half.logits == 1 else [(rows, half.logits)]
    came = ", ".join(str(tuple(one.shape)) for one in inputs)
    try:
        with evaluating(module):
            given = module(*inputs)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise UsageError(f"the {what} model can't take ({came}), which is what it will get: {error}") from error
    if not isinstance(given, Tensor) or tuple(given.shape) not in wanted or given.dtype != torch.float32:
        got = f"{tuple(given.shape)} of {given.dtype}" if isinstance(given, Tensor) else f"a {type(given).__name__}"
        raise UsageError(
            f"the {what} model gives {got} for {wanted[0][0]} rows; the contract wants {wanted[0]} of torch.float32: "
            "change its last layer, or agree on another contract"
        )
