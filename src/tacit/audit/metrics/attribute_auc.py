"""Attribute AUC: how well an attacker's scores tell the codes of a private attribute apart."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit.metrics import _checks
from tacit.audit.metrics.leak_auc import of_placements, placements
from tacit.contracts import Estimate, Reconstruction
from tacit.errors import LabelsError, TensorError


def attribute_auc(guess: Reconstruction, truth: Tensor) -> Estimate:
    """Mean over the codes of the AUC of "this code or another", weighted by how often it comes, with a 95% interval.

    Of two codes that is the plain AUC. A code for which the attacker has no score, because it was never granted a row
    of it, counts as a coin flip. Unlike a leak AUC it is not folded: an attacker that was told codes knows which is
    which. Examples are independent, visits of one example enter the interval as one; a perfect order of few rows is
    not taken for certainty (see `tacit.audit.metrics.leak_auc.delong`).

    Args:
        guess: what an attack returned: a score for each code.  value: (rows, codes)
        truth: the code of each row id, from 0; a row with a negative one is left out.  (number of ids,)

    >>> score = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]])
    >>> guess = Reconstruction(torch.arange(4), score, torch.ones(4, dtype=torch.bool))
    >>> attribute_auc(guess, torch.tensor([0, 0, 1, 1])).value
    0.75
    """
    ids, score, code = _judged(guess, truth)
    present = code.unique()
    if present.numel() < 2:
        raise LabelsError(f"{ids.numel()} rows are judged and all hold one code: take more rows")
    if score.shape[1] == 2 and int(present.max()) < 2:  # one question, asked once
        score, present = (score[:, 1] - score[:, 0])[:, None].expand(-1, 2), present[1:]
    total, floor = 0.0, 0.0
    part = torch.zeros(ids.numel(), dtype=torch.float64, device=score.device)
    for one in present.tolist():
        asked = score[:, one] if one < score.shape[1] else torch.zeros_like(part)
        value, spread, influence = _one_against_rest(asked, code == one)
        weight = float((code == one).double().mean()) if present.numel() > 1 else 1.0
        part += weight * influence
        if present.numel() > 1:
            part += ((code == one).double() - weight) * value  # how often a code comes is an estimate as well
        total, floor = total + weight * value, floor + weight**2 * spread
    spread, _ = _checks.variance_of_sum(ids, part / ids.numel())
    half = _checks.Z95 * max(spread, floor) ** 0.5
    return Estimate(total, max(0.0, total - half), min(1.0, total + half))


def _judged(guess: Reconstruction, truth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, scores and codes of the rows that count and have a code."""
    if truth.ndim != 1 or truth.is_floating_point():
        raise LabelsError(
            f"truth is one code for each row id, (number of ids,), not {tuple(truth.shape)} {truth.dtype}"
        )
    if guess.value.ndim != 2 or guess.value.shape[1] < 2:
        raise TensorError(f"the attacker's scores are {tuple(guess.value.shape)}: (rows, codes), of two codes or more")
    rows = _checks.counted(guess, truth)
    code = truth.to(guess.rows.device).long()[guess.rows[rows]]
    rows, code = rows[code >= 0], code[code >= 0]
    score = guess.value[rows].double()
    if not bool(torch.isfinite(score).all()):
        raise TensorError("some scores are not finite: look for overflow in what produced them")
    return guess.rows[rows], score, code


def _one_against_rest(score: Tensor, member: Tensor) -> tuple[float, float, Tensor]:
    """AUC, DeLong's variance with one made-up pair, and what each row adds to the AUC's error.  -> (rows,)"""
    placed = placements(score, member, ~member)
    value, spread = (float(one) for one in of_placements(placed, member, ~member, pairs=1.0))
    share = member.double().mean()
    return value, spread, (placed - value) / torch.where(member, share, 1 - share)
