"""Each protection against what it is for: a decoder that took no part in training, fitted afterwards on pairs.

The label needs one direction of eight inputs; the rest is the feature party's own business. Measured over 16 seeds, the
decoder's error over that of predicting the mean (1 = it finds nothing), the gain in it and its deviation from seed to
seed, and the label's accuracy:

    none                                              0.39                  0.927
    gaussian(snr=1)                                   1.00   +0.61 (0.04)   0.910
    distance_correlation(1)                           0.65   +0.26 (0.06)   0.896
    adversarial(1, learning_rate=0.01)                0.63   +0.24 (0.04)   0.928
    gaussian(std=0.3)                                 0.71   +0.32 (0.05)   0.928
    gaussian(std=0.3), noise_regularization(0.1)      0.95   +0.24 (0.04)   0.912    over the noise alone

With these deviations the mean gain of two fresh seeds is below its margin with a probability under 1e-4 (distance
correlation: 3.8 deviations; the others 4.9 and more).
"""

import functools

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from tacit.contracts import EmbeddingProtection, noise_source
from tacit.split.protect.embedding.adversarial import adversarial
from tacit.split.protect.embedding.distance_correlation import distance_correlation
from tacit.split.protect.embedding.gaussian import gaussian
from tacit.split.protect.embedding.noise_regularization import noise_regularization

SEEDS = 2
INPUTS, CUT, ROWS = 8, 6, 3000
TRAINED = ROWS // 2  # on these the model is trained, on half of the others the decoder is fitted

LISTS: dict[str, list[EmbeddingProtection]] = {
    "none": [],
    "gaussian": [gaussian(snr=1.0)],
    "little noise": [gaussian(std=0.3)],
    "distance_correlation": [distance_correlation(1.0)],
    "adversarial": [adversarial(1.0, learning_rate=0.01)],
    "noise_regularization": [gaussian(std=0.3), noise_regularization(0.1)],
}


def world(seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, INPUTS, generator=g)
    return x, (x[:, 0] + x[:, 1] + 0.3 * torch.randn(ROWS, generator=g) > 0).float()


def train(protect: list[EmbeddingProtection], seed: int, steps: int = 400) -> tuple[Tensor, Tensor, float]:
    """A split model as a feature party trains it: inputs and embeddings of unseen rows, and the label's accuracy."""
    torch.manual_seed(seed)
    x, y = world(seed)
    bottom = nn.Sequential(nn.Linear(INPUTS, 16), nn.Tanh(), nn.Linear(16, CUT))
    top = nn.Sequential(nn.Linear(CUT, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0))
    noise = noise_source(torch.Generator().manual_seed(seed))
    made = []
    for one in protect:
        made.append(one.regularizer(x[:2], bottom(x[:2]), [other for other in made if other is not None]))
    learning = [torch.optim.Adam([*bottom.parameters(), *top.parameters()], 0.01)]
    learning += [one.optimizer for one in made if one is not None and one.optimizer is not None]
    for _ in range(steps):
        rows = torch.randint(TRAINED, (100,))
        z, losses = bottom(x[rows]), []
        for one, regularizer in zip(protect, made, strict=True):
            if regularizer is not None:
                losses.append(regularizer(x[rows], z, noise))
            z = one.transform(z, noise)
        for optimizer in learning:
            optimizer.zero_grad()
        sum(losses, binary_cross_entropy_with_logits(top(z), y[rows])).backward()
        for optimizer in learning:
            optimizer.step()
    with torch.no_grad():
        z = bottom(x[TRAINED:])
        for one in protect:
            z = one.transform(z, noise)
        right = (top(z) > 0) == (y[TRAINED:] > 0)
    return x[TRAINED:], z, float(right.double().mean())


def decoded(x: Tensor, z: Tensor) -> float:
    """Ridge regression on the embedding and on random ReLU features of it: its error over that of the mean."""
    half = len(x) // 2
    z = (z - z[:half].mean(0)) / z[:half].std()
    g = torch.Generator().manual_seed(0)
    hidden = torch.relu(z @ torch.randn(CUT, 60, generator=g) + torch.randn(60, generator=g))
    seen = torch.cat([torch.ones(len(z), 1), z, hidden], 1).double().numpy()
    truth = x.double().numpy()
    fitted = np.linalg.solve(seen[:half].T @ seen[:half] + 1e-4 * half * np.eye(67), seen[:half].T @ truth[:half])
    error = ((seen[half:] @ fitted - truth[half:]) ** 2).sum()
    return float(error / ((truth[half:] - truth[:half].mean(0)) ** 2).sum())


@functools.cache
def outcome(name: str, seed: int) -> tuple[float, float]:
    """The decoder's relative error, and the label's accuracy."""
    x, z, accuracy = train(LISTS[name], seed)
    return decoded(x, z), accuracy


def gained(name: str, over: str, seeds: int = SEEDS) -> np.ndarray:
    return np.array([outcome(name, seed)[0] - outcome(over, seed)[0] for seed in range(seeds)])


@pytest.mark.parametrize(
    ("name", "over", "margin", "accuracy"),
    [
        ("gaussian", "none", 0.4, 0.85),
        ("distance_correlation", "none", 0.1, 0.7),
        ("adversarial", "none", 0.1, 0.85),
        ("noise_regularization", "little noise", 0.1, 0.85),
    ],
)
def test_the_decoder_finds_less_and_the_label_is_still_learned(name, over, margin, accuracy):
    assert gained(name, over).mean() > margin
    assert np.mean([outcome(name, seed)[1] for seed in range(SEEDS)]) > accuracy


def test_without_protection_the_decoder_finds_most():
    assert np.mean([outcome("none", seed)[0] for seed in range(SEEDS)]) < 0.55
