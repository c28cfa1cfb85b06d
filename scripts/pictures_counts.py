"""What attacks reach on the recorded trainings of the pictures, and how what they look at lies in each class."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from tacit import attack, attack_all
from tacit.audit.attacks.residual import log_residual
from tacit.audit.run import Finding
from tacit.audit.standard import ACCUMULATED
from tacit.contracts import Attack, View
from tacit.split.record import Transcript

BINS = 48
_MEANS = (("cosine", "mean"), ("direct_label", "mean"))  # on visits, beside what sweeps try


def findings(batches: Transcript, visits: Transcript, truth: Tensor) -> list[Finding]:
    """What every attack reached, on single batches and over all visits."""
    found = [_judged(one, batches.view, batches.clean, truth) for one in _on_batches()]
    return found + [_judged(one, visits.view, visits.clean, truth) for one in _on_visits()]


def _on_batches() -> list[Attack]:
    names = ("norm", "cosine", "majority", "hint", "direct_label", "residual", "likelihood", "learned")
    return [*(attack(name) for name in names), attack("spectral", of="gradient"), attack("clustering", of="gradient")]


def _on_visits() -> list[Attack]:
    return [attack("accumulated", attack=inner, how=how) for inner, how in (*ACCUMULATED, *_MEANS)]


def _judged(one: Attack, view: View, clean: Tensor, truth: Tensor) -> Finding:
    """The attack by itself, so that what it finds does not depend on who came before."""
    return attack_all(view, truth, [one], noise=torch.Generator().manual_seed(0), clean=clean)[0]


def best_so_far(visits: Transcript, truth: Tensor, count: int) -> float:
    """What the best attack on means reaches when so many visits of each example are over."""
    view, clean = visits.view, visits.clean[:count]
    first = View.of(view.gradient[:count], rows=view.rows[:count])
    inner = ("norm", "residual", "likelihood", "cosine", "direct_label")
    found = [_judged(attack("accumulated", attack=name), first, clean, truth).leak.value for name in inner]
    return rounded(max(found))


# --- how things lie --------------------------------------------------------------------------------------------------


def histograms(batches: Transcript, truth: Tensor) -> dict[str, dict[str, list[float]]]:
    """Of three quantities, by class: what the norm, cosine and residual attacks look at."""
    sent, clean = batches.view.gradient.double(), batches.clean.double()  # (steps, batch, width)
    labels = truth[batches.view.rows] == 1  # (steps, batch)
    told = labels.double().argmax(1)  # the first positive of each batch: its clean gradient is what is known
    known = clean[torch.arange(len(clean)), told]
    norm = sent.norm(dim=-1)
    rms = norm.square().mean(1, keepdim=True).sqrt()
    cosine = functional.cosine_similarity(sent, known[:, None], dim=-1)
    others = torch.ones_like(labels).scatter_(1, told[:, None], False)
    return {
        "norm": _counted((norm / rms).clamp_min(1e-9).log10(), labels, -3.0, 1.0),
        "cosine": _counted(cosine[others], labels[others], -1.0, 1.0),
        "residual": _counted(_within(log_residual(sent) / math.log(10)), labels, -5.0, 2.0),
    }


def _within(logs: Tensor) -> Tensor:
    """Logarithms of energies, over that of the mean energy of their batch."""
    return logs - (10.0**logs).mean(1, keepdim=True).clamp_min(1e-300).log10()


def _counted(values: Tensor, positive: Tensor, low: float, high: float) -> dict[str, list[float]]:
    """The share of each class in each of the bins from low to high; what lies outside counts in the outermost."""
    inside = values.clamp(low, high)
    shares = {}
    for name, mask in (("negative", ~positive), ("positive", positive)):
        counts = torch.histc(inside[mask], BINS, low, high)
        shares[name] = [round(share, 4) for share in (counts / counts.sum()).tolist()]
    return {"range": [low, high], **shares}


def rounded(value: float | Tensor) -> float:
    return round(float(value), 4)
