"""The reconstructor that takes part in training: who owns it, who trains it, and how others look through it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tacit.contracts import Regularizer
from tacit.errors import TensorError, UsageError

_HIDDEN = (256, 2048)  # the least and the most units of the default reconstructor


class Reconstructing(Regularizer):
    """A regularizer that looks at z through a reconstructor: one of its own, which it trains, or a borrowed one.

    A borrowed reconstructor belongs to another regularizer of the same list, which trains and stores it; here it is
    frozen, and appears neither among the parameters nor in the state.
    """

    def __init__(self, own: nn.Module | None, borrowed: nn.Module | None, options: Any) -> None:
        super().__init__()
        self.options = options
        self.own = own
        self._borrowed = (borrowed,)  # in a tuple, where no module looks for its parts
        self.optimizer = None if own is None else torch.optim.Adam(own.parameters(), lr=options.learning_rate)

    @property
    def reconstructor(self) -> nn.Module:
        """What is looked through, whoever owns it."""
        found = self._borrowed[0] if self.own is None else self.own
        assert found is not None  # one of the two is given
        return found

    def look(self, z: Tensor) -> Tensor:
        """The reconstruction, from which its own reconstructor learns; a borrowed one learns where it belongs."""
        made: Tensor = self.frozen(z) if self.own is None else self.own(z)
        return made

    def frozen(self, z: Tensor) -> Tensor:
        """The reconstruction with a gradient into z alone: no parameter gets any, and no buffer is moved."""
        module = self.reconstructor
        weights = {name: weight.detach() for name, weight in module.named_parameters()}
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        made: Tensor = functional_call(module, {**weights, **buffers}, (z,))
        return made


def squared_errors(made: Tensor, wanted: Tensor) -> Tensor:
    """Each row's error, summed over the columns: so the authors weigh it against the label's loss.  (batch,)"""
    return (made.flatten(start_dim=1) - wanted).square().sum(-1)


def own_or_borrowed(
    given: nn.Module | None, x: Tensor, z: Tensor, others: Sequence[Regularizer]
) -> tuple[nn.Module | None, nn.Module | None]:
    """A module to own or else one to borrow: a copy of the given one, the first one before it, or a new default.

    A copy, because a protection is a value: several runs may be made with the same one.
    """
    before = next((other.reconstructor for other in others if isinstance(other, Reconstructing)), None)
    if given is None and before is not None:
        _check(before, x, z)
        return None, before
    if given is None:  # one hidden layer that is no narrower than the way from z to x, within reason
        width, inputs = z[0].numel(), x[0].numel()
        hidden = min(max(_HIDDEN[0], min(width, inputs)), _HIDDEN[1])
        given = nn.Sequential(nn.Flatten(), nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, inputs))
    own = copy.deepcopy(given).to(device=z.device, dtype=z.dtype)
    _check(own, x, z)
    if not any(weight.requires_grad for weight in own.parameters()):
        raise UsageError(f"the reconstructor {own!r} has no parameters to train: pass a network that can learn")
    return own, None


def module_or_none(value: nn.Module | None) -> nn.Module | None:
    """The value, if it can be a reconstructor; else a `UsageError`."""
    if value is None or isinstance(value, nn.Module):
        return value
    raise UsageError(f"reconstructor = {value!r} is no torch module: pass one that maps an embedding to an input")


def _check(module: nn.Module, x: Tensor, z: Tensor) -> None:
    """Refuse a reconstructor that does not lead from embeddings like z to inputs like x."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        with torch.no_grad():
            made = module.eval()(z.detach())
    except RuntimeError as error:
        raise TensorError(
            f"the reconstructor can't take an embedding {tuple(z.shape)} of {z.dtype}: {error}; pass one that maps it "
            f"to {tuple(x.shape)}"
        ) from error
    finally:
        for part, mode in modes:
            part.training = mode
    if not isinstance(made, Tensor) or made.shape[:1] != x.shape[:1] or made.numel() != x.numel():
        shape = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
        raise TensorError(
            f"the reconstructor gives {shape} for an embedding {tuple(z.shape)}, but the inputs are {tuple(x.shape)}: "
            f"its output must hold {x[0].numel()} numbers for each row"
        )
