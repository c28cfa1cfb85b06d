"""Who reads rows back from an embedding: decoders that answer all questions of all columns at once.

Each is given codes and answers of rows that the attacker knows, and the codes of others: their truth never reaches one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.spatial import cKDTree
from sklearn.tree import ExtraTreeRegressor
from torch import Tensor, nn
from torch.nn import functional

from tacit.audit.fitting import Loss, trained
from tacit.contracts import noise_source
from tacit.exchange._rows import alike

Codes = NDArray[np.generic]
Bins = NDArray[np.uint8]
Floats = NDArray[np.float32]
Places = NDArray[np.intp]

LEVELS = 256  # of each number of an embedding, as the decoders that learn see it; ranks have no more
FEW = 4  # an embedding that so few known rows have, or fewer, is a fingerprint
_HIDDEN = 128
_PRIOR = 4.0  # rows' worth of the mean that a leaf's mean is mixed with
_NEIGHBOURS = 16
_WIDE = 10  # numbers a row above which a tree of neighbours is no faster than to look at all rows
_FEW = 4_000  # known rows that are looked at then


def ranked(z: Codes, known: Places) -> Bins | Floats:
    """Each number from 0 to 256: bytes as they are, others by their rank among the known rows."""
    if z.dtype == np.uint8:
        return z.astype(np.uint8, copy=False)
    out = np.empty(z.shape, dtype=np.float32)
    for place in range(z.shape[1]):
        ladder = np.sort(z[known, place])
        rank = np.searchsorted(ladder, z[:, place]) + np.searchsorted(ladder, z[:, place], side="right")
        out[:, place] = rank * (LEVELS / 2 / (len(ladder) + 1))
    return out


# --- a network -------------------------------------------------------------------------------------------------------


class Bag(nn.Module):
    """A network over columns of levels: every level of every column has a weight vector of its own in the first layer.

    Steps and isolated levels are as easy for it as lines. A level is a number of `sizes[column]`, or -1 for "hidden".
    """

    starts: Tensor

    def __init__(self, sizes: tuple[int, ...], numbers: int, outputs: int, *, seed: int) -> None:
        super().__init__()
        starts = np.cumsum([0, *(size + 1 for size in sizes)])
        self.register_buffer("starts", torch.from_numpy(starts[:-1].astype(np.int64)) + 1)
        draw = torch.Generator().manual_seed(seed)
        self.first = nn.Parameter(torch.randn(int(starts[-1]), _HIDDEN, generator=draw) * (len(sizes) + 1) ** -0.5)
        self.plain = nn.Parameter(torch.randn(numbers, _HIDDEN, generator=draw) * (numbers + 1) ** -0.5)
        self.bias = nn.Parameter(torch.zeros(_HIDDEN))
        self.second = nn.Parameter(torch.randn(_HIDDEN, _HIDDEN, generator=draw) * (2 / _HIDDEN) ** 0.5)
        self.last = nn.Parameter(torch.zeros(_HIDDEN, outputs))
        self.offset = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor, answers: slice | Tensor = slice(None)) -> Tensor:
        """(rows, columns + numbers) -> (rows, answers), or some of the answers alone"""
        count = len(self.starts)
        places = x[:, :count].long() + self.starts
        hidden = functional.embedding_bag(places, self.first, mode="sum") + self.bias
        if self.plain.shape[0]:
            hidden = hidden + x[:, count:] @ self.plain
        hidden = functional.relu(functional.relu(hidden) @ self.second)
        return hidden @ self.last[:, answers] + self.offset[answers]


def network(known: Bins, answers: Floats, asked: Bins, *, numbers: int, seed: int) -> Floats:
    """A network of two hidden layers, fitted to numbers by squared error and to yes and no by cross entropy.

    Levels are (rows, width), answers (rows, questions); the first `numbers` of the questions are about numbers.
    """
    model = Bag((LEVELS,) * known.shape[1], known.shape[1], answers.shape[1], seed=seed)
    z, target = _seen(known), torch.from_numpy(answers)
    with torch.no_grad():
        model.offset.copy_(first_guess(target, numbers))
    fit, held = torch.arange(len(z)).tensor_split([len(z) - max(1, len(z) // 8)])
    source = noise_source(torch.Generator().manual_seed(seed))
    count = updates_for(len(fit))
    trained(model, z, target, fit, held, source, updates=count, loss=answered(numbers), rate=4e-3, decay=1e-3)
    with torch.no_grad():
        return torch.cat([model(_seen(part)) for part in np.array_split(asked, max(1, len(asked) // 8192))]).numpy()


def _seen(x: Bins) -> Tensor:
    """Levels, then the same as numbers from -1 to 1."""
    z = torch.from_numpy(x).float()
    return torch.cat([z, z / (LEVELS / 2) - 1], dim=1)


def updates_for(rows: int) -> int:
    """About eight times through the rows, at 256 each."""
    return max(200, rows // 32)


def first_guess(target: Tensor, numbers: int) -> Tensor:
    """What a network says before it has learnt anything: the mean, as a logit where yes or no is asked."""
    mean = target.mean(0)
    mean[numbers:] = mean[numbers:].clamp(1e-5, 1 - 1e-5).logit()
    return mean


def answered(numbers: int) -> Loss:
    """The loss of answers: squared error of the first `numbers`, else cross entropy; NaN is not asked for."""
    entropy = functional.binary_cross_entropy_with_logits

    def loss(answer: Tensor, target: Tensor) -> Tensor:
        value, bit, hidden = answer[:, :numbers], answer[:, numbers:], target.isnan()
        if not bool(hidden.any()):
            squares = (value - target[:, :numbers]).square().sum()
            return (squares + entropy(bit, target[:, numbers:], reduction="sum")) / len(answer)
        truth, asked = target.nan_to_num(0.0), (~hidden).to(answer.dtype)
        squares = ((value - truth[:, :numbers]).square() * asked[:, :numbers]).sum()
        return (squares + entropy(bit, truth[:, numbers:], asked[:, numbers:], reduction="sum")) / len(answer)

    return loss


# --- trees -----------------------------------------------------------------------------------------------------------


def forest(known: Bins, answers: Floats, asked: Bins, *, seed: int, trees: int = 16, depth: int = 11) -> Floats:
    """Randomised trees (scikit-learn) that answer all questions at once; the mean over trees.

    Each parts random mixtures of the answers, so that one tree serves hundreds of questions.
    """
    rng = np.random.default_rng(seed)
    total = np.zeros((len(asked), answers.shape[1]), dtype=np.float32)
    spread = answers.std(0)
    scaled = (answers - answers.mean(0)) / np.where(spread > 0, spread, 1.0)
    rows, wanted = known.astype(np.float32), asked.astype(np.float32)
    for place in range(trees):
        mixtures = scaled @ rng.standard_normal((scaled.shape[1], 16)).astype(np.float32)
        tree = ExtraTreeRegressor(max_depth=depth, min_samples_leaf=5, max_features=1.0, random_state=seed + place)
        tree.fit(rows, mixtures)
        total += _means(tree.apply(rows), answers, tree.tree_.node_count)[tree.apply(wanted)]
    return total / np.float32(trees)


def _means(group: Places, answers: Floats, groups: int) -> Floats:
    """The mean answers of each group, mixed with those of all rows as if these were a few more."""
    present, counts, sums = _sums(group, answers)
    out = np.tile(answers.mean(0), (groups, 1))
    out[present] = (sums + _PRIOR * out[0]) / (counts[:, None] + _PRIOR)
    return out.astype(np.float32)


def _sums(group: Places, answers: Floats) -> tuple[Places, Places, Floats]:
    """The groups that there are, how many rows each has, and the sums of their answers."""
    present, place, counts = np.unique(group, return_inverse=True, return_counts=True)
    rows = len(group)
    members = csr_matrix((np.ones(rows, np.float32), (place, np.arange(rows))), (len(present), rows))
    return present, counts, members @ answers


# --- rows that are alike ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Known rows by their embedding, equal ones together."""

    rows: Places  # a known row of each different embedding, as a place among those known
    counts: Places  # how many known rows have it
    of: Places  # for each row asked for, the embedding that it equals, or -1
    group: Places  # for each known row, its embedding

    @classmethod
    def look_up(cls, known: Codes, asked: Codes) -> Table:
        """Compare embeddings byte by byte."""
        group = alike(np.concatenate([known, asked]))
        present, rows, inverse, counts = np.unique(
            group[: len(known)], return_index=True, return_inverse=True, return_counts=True
        )
        place = np.full(int(group.max()) + 1, -1, dtype=np.intp)
        place[present] = np.arange(len(present))
        return cls(rows, counts, place[group[len(known) :]], inverse)

    @property
    def matches(self) -> Places:
        """For each row asked for, how many known rows have the same embedding."""
        return np.where(self.of >= 0, self.counts[self.of], 0)


def exact(table: Table, answers: Floats) -> Floats:
    """The mean answers of the known rows with the same embedding; of all known rows where there is none.

    For embeddings of few different values nobody does better; for others it finds fingerprints. How far a mean of few
    rows is drawn to that of all depends on how alike rows of one embedding are, question by question.
    """
    _, counts, sums = _sums(table.group, answers)
    middle = answers.mean(0)
    means = np.tile(middle, (len(counts) + 1, 1))  # the last one has no row
    for some in (counts <= FEW, counts > FEW):  # fingerprints are not judged by what others have in common
        if some.any():
            prior = _drawn_to_all(answers[some[table.group]], counts[some], sums[some])
            means[:-1][some] = (sums[some] + prior * middle) / (counts[some, None] + prior)
    return means[table.of].astype(np.float32)


def _drawn_to_all(answers: Floats, counts: Places, sums: Floats) -> Floats:
    """For each question the variance within groups over that between them: so many rows the mean of all is worth.

    By the analysis of variance of answers (rows, questions), given the size of each group and the sums of its answers;
    where no two rows are of one group there is nothing to learn it from, and it is small.
    """
    rows, groups = len(answers), len(counts)
    if groups in (1, rows):
        return np.full(answers.shape[1], 0.1, dtype=np.float32)
    alike = np.square(sums / np.sqrt(counts)[:, None]).sum(0, dtype=np.float64)
    whole = rows * np.square(answers.mean(0, dtype=np.float64))
    within = np.maximum(np.square(answers).sum(0, dtype=np.float64) - alike, 0.0) / (rows - groups)
    usual = (rows - np.square(counts.astype(np.float64)).sum() / rows) / (groups - 1)
    between = np.maximum((alike - whole) / (groups - 1) - within, 0.0) / usual
    prior = within / np.maximum(between, 1e-9)
    return np.asarray(np.clip(prior, 0.1, 1e4), dtype=np.float32)


def nearest(known: Floats, answers: Floats, asked: Floats, table: Table, *, seed: int) -> Floats:
    """The mean answers of the nearest different embeddings, weighted by nearness and by how many rows have each.

    Where an embedding is wide, only some of the known rows are looked at, because that takes long.
    """
    means = _sums(table.group, answers)[2] / table.counts[:, None].astype(np.float32)
    spots, back = known[table.rows], None
    if (table.of >= 0).all():  # one row of each embedding is enough
        _, first, back = np.unique(table.of, return_index=True, return_inverse=True)
        asked = asked[first]
    chosen = np.arange(len(spots))
    k = min(_NEIGHBOURS, len(spots))
    if known.shape[1] > _WIDE:
        chosen = np.random.default_rng(seed).permutation(len(spots))[:_FEW]
        distance, found = _looked_at(asked, spots[chosen], min(k, len(chosen)))
    else:
        distance, found = cKDTree(spots).query(asked, k=k)
    distance, found = distance.reshape(len(asked), -1), chosen[found.reshape(len(asked), -1)]
    weight = table.counts[found] / (np.square(distance) + 0.25 * known.shape[1])
    weight = (weight / weight.sum(1, keepdims=True)).astype(np.float32)
    out = np.zeros((len(asked), answers.shape[1]), dtype=np.float32)
    for place in range(found.shape[1]):
        out += weight[:, place, None] * means[found[:, place]]
    return out if back is None else out[back]


def _looked_at(asked: Floats, spots: Floats, k: int) -> tuple[NDArray[np.float64], Places]:
    """Distances and numbers of the k nearest spots, by looking at all of them."""
    far = torch.from_numpy(spots)
    parts = [torch.cdist(part, far).topk(k, largest=False) for part in torch.from_numpy(asked).split(1024)]
    near = torch.cat([part.values for part in parts]).double()
    return near.numpy(), torch.cat([part.indices for part in parts]).numpy()


def together(beliefs: list[Floats], numbers: int) -> Floats:
    """The mean of several decoders' beliefs, each taken in units of its own spread where yes or no is asked."""
    total = np.zeros_like(beliefs[0])
    for belief in beliefs:
        spread = belief[:, numbers:].std(0)
        total[:, :numbers] += belief[:, :numbers]
        total[:, numbers:] += (belief[:, numbers:] - belief[:, numbers:].mean(0)) / np.where(spread > 0, spread, 1.0)
    return total / np.float32(len(beliefs))
