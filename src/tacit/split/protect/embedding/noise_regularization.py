"""Reconstructions that look like noise (section 3.2.3 of Report 2020b)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from tacit.contracts import EmbeddingProtection, NoiseSource, Regularizer
from tacit.errors import UsageError
from tacit.split.protect.embedding._base import BaseProtection, pair
from tacit.split.protect.embedding._reconstructor import Reconstructing, module_or_none, own_or_borrowed, squared_errors
from tacit.split.protect.facts import Facts, Option
from tacit.split.protect.gradient._base import positive_number

_KINDS = ("gaussian", "uniform")

FACTS = Facts(
    strengths=(Option("weight"),), others=(Option("noise", _KINDS, stronger=None), Option("width", stronger=None))
)


@dataclass(frozen=True)
class NoiseRegularization(BaseProtection):
    """See `noise_regularization`."""

    weight: float
    noise: str
    width: float
    reconstructor: nn.Module | None
    learning_rate: float

    def regularizer(self, x: Tensor, z: Tensor, others: Sequence[Regularizer]) -> Regularizer:
        """The reconstructor and the noise that it is to see."""
        own, borrowed = own_or_borrowed(self.reconstructor, pair(x, z), z, others)
        return _Noisy(own, borrowed, self)


class _Noisy(Reconstructing):
    """Two losses: the noise's, which reaches z alone, and the reconstructor's own, where it is not borrowed."""

    options: NoiseRegularization

    def forward(self, x: Tensor, z: Tensor, noise: NoiseSource) -> Tensor:
        """weight |R(z) - N|^2 of one batch, and |R(z) - x|^2 for the reconstructor's sake."""
        hidden = pair(x, z)
        loss = self.options.weight * squared_errors(self.frozen(z), self._draw(hidden, noise)).mean()
        return loss if self.own is None else loss + squared_errors(self.look(z.detach()), hidden).mean()

    def _draw(self, like: Tensor, noise: NoiseSource) -> Tensor:
        """Noise in the place of the inputs.  (batch, inputs)"""
        if self.options.noise == "gaussian":
            return self.options.width * noise.normal(like.shape, dtype=like.dtype, device=like.device)
        return self.options.width * (2 * noise.uniform(like.shape, dtype=like.dtype, device=like.device) - 1)


def noise_regularization(
    weight: float,
    noise: str = "gaussian",
    width: float = 2.0,
    reconstructor: nn.Module | None = None,
    learning_rate: float = 1e-3,
) -> EmbeddingProtection:
    """A bottom model whose reconstructions look like noise: the loss weight |R(z) - N|^2, for the bottom model alone.

    The reconstructor R learns |R(z) - x|^2 and nothing of the noise (errors are summed over the columns and averaged
    over the rows). In one list with `adversarial` there is one R for both, whichever comes first: the first one owns
    it, and it learns from the embedding at that place.

    The noise is drawn anew at every step and has mean zero, so on average the bottom model learns to make R(z) small,
    whatever the noise is: the report finds no difference between the kinds either, and a wider noise only makes the
    gradient noisier. Small is not uninformed: R, and any decoder that is trained afterwards, can turn small numbers
    into large ones again. Behind the report's linear bottom model a ridge regression reads all of it back, at weight 1
    as well; behind the ReLU layers of a table it hides a good deal (`python -m papers 001-table-2`), and with
    `gaussian(std)` in the list, whose noise does not shrink with the embedding, more.

    Args:
        weight: of this loss against the label's.
        noise: what reconstructions are drawn to, "gaussian" or "uniform".
        width: the standard deviation of Gaussian noise, or half the range of uniform noise.
        reconstructor: any module from embeddings (batch, *cut) to as many numbers as an input has; a copy of it is
            trained. None shares that of an `adversarial` before this one, or makes a network with a hidden layer.
        learning_rate: of the Adam that trains the reconstructor, where it is not shared.
    """
    if noise not in _KINDS:
        raise UsageError(f"noise = {noise!r} is out of range: it is one of {', '.join(_KINDS)}")
    return NoiseRegularization(
        positive_number("weight", weight),
        noise,
        positive_number("width", width),
        module_or_none(reconstructor),
        positive_number("learning_rate", learning_rate),
    )
