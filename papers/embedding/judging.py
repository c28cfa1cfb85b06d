"""One trained setting judged, on held-out rows alone: what the model is worth, and what its embeddings give away.

The report judges by a reconstructor that learns beside the training. Its figure is kept for comparison; what counts
is what attackers find who took no part in training and learn from scratch, after the fact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from papers.embedding.dependence import distance_correlation
from papers.embedding.mirror import mirrored
from papers.embedding.problems import Problem
from papers.embedding.training import Trained, hidden
from tacit.audit.input_attacks import attack as input_attack
from tacit.audit.inputs import grant_inputs
from tacit.audit.metrics.attribute_auc import attribute_auc
from tacit.audit.metrics.leak_auc import delong
from tacit.audit.metrics.reconstruction import reconstruction, relative_error
from tacit.audit.run import attack_all
from tacit.contracts import Estimate, Reconstruction, View
from tacit.lab.data import fashion
from tacit.progress import Count

__all__ = ["FEW", "HEADLINE", "ROWS", "SIZES", "headline", "judge", "noise_by_batch_size"]

ROWS = 10_000
"""So many held-out rows are judged at most; half of them are what attackers learn from."""

FEW = 0.01
"""Beside attackers that learn from half of the rows there is one that knows only this share of them."""

SIZES = (32, 64, 128, 256, 512, 1024, 2048)
"""The batch sizes at which distance correlations are measured."""

HEADLINE = 512
"""The batch size at which one number stands for a setting: that of the report."""

_PASSES = 150  # how often a decoder sees its pairs, more or less
_MOST_UPDATES = 3000
_ATTRIBUTE_UPDATES = 800
_PAIRS_OF_A_BATCH = 256
_Z95 = 1.959963984540054


def judge(trained: Trained, problem: Problem, *, seed: int, progress: Count) -> dict[str, Any]:
    """All figures of one setting, as they are written down."""
    judged = _Judge(trained, problem, seed)
    steps: dict[str, Callable[[], Any]] = {
        "utility": judged.utility,
        "dcor": judged.distance_correlations,
        "report": judged.as_the_report,
        "inputs": judged.inputs,
        "attribute": judged.attribute,
        "labels": judged.labels,
        "pictures": judged.pictures,
        "curve": lambda: trained.curve.moments,
    }
    found: dict[str, Any] = {}
    for done, (name, step) in enumerate(steps.items()):
        progress(done, len(steps))
        found[name] = step()
    return found


def headline(rows: int) -> int:
    """The batch size at which one number stands for a setting: that of the report, or less where rows are few."""
    return max(size for size in _fitting(rows) if size <= HEADLINE)


def noise_by_batch_size(x: Tensor, width: int, *, seed: int) -> dict[str, dict[str, Any]]:
    """The report's figure 2: inputs against noise that knows nothing of them, plain and without bias, by batch size."""
    generator = torch.Generator(x.device).manual_seed(seed)
    noise = torch.randn(len(x), width, generator=generator, device=x.device)
    return {"plain": _by_size(x, noise, seed), "unbiased": _by_size(x, noise, seed, unbiased=True)}


class _Judge:
    """One setting's held-out rows, seen by everybody who judges them."""

    def __init__(self, trained: Trained, problem: Problem, seed: int) -> None:
        self.trained, self.problem, self.seed = trained, problem, seed
        self.features = [x[:ROWS] for x in problem.test.features]
        self.truth = problem.truth[:ROWS]
        with torch.no_grad():
            self.z = trained.model.embed(self.features, noise=self._noise()).flatten(1)  # what is sent
            self.x = hidden(trained.model.bottom, self.features)  # what the report calls X
        self.view = View.of_embeddings(self.z[None])
        self._read: Reconstruction | None = None  # what the decoder made of the data, for the pictures

    def utility(self) -> dict[str, Any]:
        """Accuracy or AUC, and the loss, on all held-out rows."""
        test = self.problem.test
        logits = self.trained.model.predict(test.features, test.own, noise=self._noise())
        train_loss = self.trained.model.history[-1].loss
        if self.problem.loss == "softmax":
            right = (logits.argmax(1) == test.labels).double()
            value, half = float(right.mean()), _Z95 * float(right.std()) / len(right) ** 0.5
            loss = float(functional.cross_entropy(logits, test.labels))
        else:
            area, spread = delong(logits, test.labels)
            value, half = float(area), _Z95 * float(spread.sqrt())
            loss = float(functional.binary_cross_entropy_with_logits(logits, test.labels))
        low, high = max(0.0, value - half), min(1.0, value + half)
        return {
            **{"name": self.problem.utility, "value": value, "low": low, "high": high},
            **{"train_loss": train_loss, "test_loss": loss},
        }

    def distance_correlations(self) -> dict[str, Any]:
        """Between X and what is sent, by batch size; before training; and between the data and what is sent."""
        with torch.no_grad():
            bottom = self.trained.untrained.eval()
            first = bottom(*self.features).flatten(1)
            before = hidden(bottom, self.features)
        return {
            "by_batch_size": _by_size(self.x, self.z, self.seed),
            "unbiased": _by_size(self.x, self.z, self.seed, unbiased=True),
            "untrained": _by_size(before, first, self.seed, sizes=(headline(len(self.x)),)),
            "data": _by_size(self.truth, self.z, self.seed, sizes=(headline(len(self.x)),)),
        }

    def as_the_report(self) -> dict[str, Any]:
        """Loss of the attacker that learnt beside the training, and of the reconstructor that took part in it."""
        blind = float((self.x - self.x.mean(0)).square().sum(1).mean())
        with torch.no_grad():
            plain = torch.cat([self.trained.model.bottom(*few) for few in _slices(self.features)]).flatten(1)
        return {
            "beside": self._loss(self.trained.beside),
            "in_training": None if self.trained.in_training is None else self._loss(self.trained.in_training),
            "mean": blind,
            "embedding": float(plain.square().mean().sqrt()),
        }

    def inputs(self) -> list[dict[str, Any]]:
        """What independent attackers read of the data, and with the bottom mirrored, of X."""
        few = {"share": FEW, "updates": self._updates(FEW)}
        image = mirrored(self.trained.model.bottom, self.x.shape[1:], self.z.shape[1])
        mirror = {"network": image, "updates": self._updates(0.5)}
        attackers: tuple[tuple[str, str, dict[str, Any], str, Tensor], ...] = (
            ("decoder", "decoder", {"updates": self._updates(0.5)}, "data", self.truth),
            ("few_pairs", "decoder", few, "data", self.truth),
            ("linear_decoder", "linear_decoder", {}, "data", self.truth),
            ("mirror", "decoder", mirror, "input", self.x),
        )
        found = []
        for name, attack, options, of, truth in attackers:
            known = grant_inputs(truth, noise=self._noise())  # the same rows each time
            guess = input_attack(attack, **options)(self.view, known, self._noise())
            found.append(self._reading(name, of, guess, truth))
            if name == "decoder":
                self._read = guess
        return found

    def attribute(self) -> dict[str, Any] | None:
        """What the private column is guessed with, where there is one."""
        if self.problem.attribute is None:
            return None
        column, codes = self.problem.attribute[0], self.problem.attribute[1][:ROWS]
        known = grant_inputs(self.truth, attribute=codes, noise=self._noise())
        guess = input_attack("attribute", updates=min(_ATTRIBUTE_UPDATES, self._updates(0.5)))(
            self.view, known, self._noise()
        )
        return {"column": column, "auc": _told(attribute_auc(guess, codes))}

    def labels(self) -> list[dict[str, Any]]:
        """What the feature party can tell of labels from its own embeddings, beside what the model itself predicts."""
        if self.problem.loss != "binary":
            return []
        test, batch = self.problem.test, min(HEADLINE, len(self.truth))
        count = len(self.truth) // batch * batch
        with torch.no_grad():
            own = torch.cat([self.trained.model.bottom(*few) for few in _slices(self.features)])[:count]
            predicted = self.trained.model.predict(self.features, [x[:ROWS] for x in test.own], noise=self._noise())
        rows = torch.arange(count, device=own.device).reshape(-1, batch)
        view = View.of_embeddings(own.reshape(-1, batch, *own.shape[1:]), rows=rows, role="features")
        findings = attack_all(
            view,
            test.labels[:count],
            ["spectral", "model_completion"],
            noise=self._noise(),
            prediction=predicted[:count],
        )
        return [
            {
                "attack": one.attack,
                "leak": _told(one.leak),
                "baseline": None if one.baseline is None else _told(one.baseline),
            }
            for one in findings
        ]

    def pictures(self) -> dict[str, Any] | None:
        """One unseen picture of each class and what the decoder makes of it, as grey values from 0 to 255."""
        if self.problem.name != "fashion" or self._read is None:
            return None
        unseen = self._read.rows[self._read.counted]
        classes = self.problem.test.labels[unseen]
        chosen = [int(unseen[classes == one][0]) for one in range(len(fashion.CLASSES)) if bool((classes == one).any())]
        place = {int(row): i for i, row in enumerate(self._read.rows.tolist())}
        made = self._read.value[[place[row] for row in chosen]]
        return {"rows": chosen, "original": _grey(self.truth[chosen]), "decoder": _grey(made)}

    def _updates(self, share: float) -> int:
        """Of an attacker that learns from such a share of the rows."""
        return min(_MOST_UPDATES, max(20, round(_PASSES * share * len(self.truth) / _PAIRS_OF_A_BATCH)))

    def _noise(self) -> torch.Generator:
        return torch.Generator(self.problem.truth.device).manual_seed(self.seed)

    def _loss(self, reconstructor: nn.Module) -> float:
        """|R(z) - x|^2, summed over the columns and averaged over the rows."""
        with torch.no_grad():
            return float((reconstructor.eval()(self.z).flatten(1) - self.x).square().sum(1).mean())

    def _reading(self, name: str, of: str, guess: Reconstruction, truth: Tensor) -> dict[str, Any]:
        seen = guess.rows[~guess.counted]
        return {
            "attack": name,
            "of": of,
            "error": _told(reconstruction(guess, truth)),
            "relative": _told(relative_error(guess, truth, truth[seen].mean(0))),
        }


def _by_size(
    x: Tensor, z: Tensor, seed: int, *, unbiased: bool = False, sizes: tuple[int, ...] = SIZES
) -> dict[str, dict[str, float]]:
    """Distance correlation by batch size, where two batches or more can be had.

    JSON knows no numbers as keys, so sizes are written as text.
    """
    noise = torch.Generator(x.device).manual_seed(seed)
    return {
        str(size): _told(distance_correlation(x, z, batch_size=size, noise=noise, unbiased=unbiased))
        for size in sorted(set(_fitting(len(x), sizes)))
    }


def _fitting(rows: int, sizes: tuple[int, ...] = SIZES) -> tuple[int, ...]:
    """Those batch sizes of which so many rows make two batches or more, or else the largest that does."""
    return tuple(size for size in sizes if 2 * size <= rows) or (rows // 2,)


def _told(estimate: Estimate) -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _slices(features: list[Tensor]) -> list[list[Tensor]]:
    return [list(few) for few in zip(*(x.split(8192) for x in features), strict=True)]


def _grey(rows: Tensor) -> list[list[int]]:
    """Pixels around zero as grey values."""
    values: list[list[int]] = ((rows + 0.5).clamp(0, 1) * 255).round().int().tolist()
    return values
