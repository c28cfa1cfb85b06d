"""The attribute attack: what embeddings tell about one private column, whether or not the whole input can be read."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tacit.audit import fitting, views
from tacit.audit.facts import Facts
from tacit.audit.input_attacks import _common
from tacit.contracts import InputAttack, KnownInputs, Noise, NoiseSource, Reconstruction, View, noise_source
from tacit.errors import UsageError

_HIDDEN = (64, 32)
_DECAY = 3.0

FACTS = Facts(order=40)


def attribute(share: float = 0.5, updates: int = 800) -> InputAttack:
    """Guesses the code of a private column by small networks, trained on rows whose code is known.

    Two hidden layers beside a linear way, on the embedding alone, with weight decay. There are five of them, each of
    which holds out another fifth of the examples to choose when to stop, and their logits are averaged. The answer
    is the log odds of each code against all others. Codes that no granted row holds are not known to exist.

    Args:
        share: of all examples of the view, how many codes it learns from; where fewer are granted, all of those.
        updates: how many each network gets.

    Knows: the embeddings; known.attribute.
    Costs: 5 * `updates` updates of a small network at 256 rows.
    """
    _common.check_share("attribute", share)
    views.check_count("attribute", "updates", updates, "update")

    def guess(view: View, known: KnownInputs, noise: Noise) -> Reconstruction:
        source = noise_source(noise)
        pairs = _common.pairs(view, known, "attribute", share, source, "attribute")
        if pairs.known[pairs.rows][pairs.fold >= 0].unique().numel() < 2:
            raise UsageError("the attack 'attribute' knows rows of one code alone: grant it more, or leave it out")
        logits = [_logits(pairs, fold, updates, source) for fold in range(_common.FOLDS)]
        return Reconstruction(pairs.rows, _log_odds(torch.stack(logits).mean(0)), pairs.hidden)

    return views.named(attribute, guess, guesses="attribute", share=share)


def _logits(pairs: _common.Pairs, fold: int, updates: int, source: NoiseSource) -> Tensor:
    """What the network that holds out one fold says about every row.  (visits, codes)"""
    z, target, codes = pairs.z, pairs.known[pairs.rows], int(pairs.known.max()) + 1
    network = fitting.Straight(z.shape[1], _HIDDEN, codes)
    fitting.drawn(network, source, z.device)
    network.start()
    fit, held = pairs.split(fold)
    if fit.numel() and held.numel():
        loss = functional.cross_entropy
        fitting.trained(network, z, target, fit, held, source, updates=updates, loss=loss, decay=_DECAY)
    return fitting.answer(network, z, sum(_HIDDEN) + z.shape[1] + codes)


def _log_odds(logits: Tensor) -> Tensor:
    """Of each code against all others together: it orders rows as a probability does and does not round to 0 or 1.

    >>> _log_odds(torch.tensor([[0.0, 2.0]]))
    tensor([[-2., 2.]])
    """
    itself = torch.eye(logits.shape[1], dtype=torch.bool, device=logits.device)
    columns = [logits[:, one] - logits.masked_fill(itself[one], -torch.inf).logsumexp(1) for one in range(len(itself))]
    return torch.stack(columns, dim=1)
