"""What one epoch of sent rows looked like: class means and covariances, and the noise that was on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import LabelsError, TensorError, UsageError

__all__ = ["WIDEST", "Moments"]

WIDEST = 2048
"""Numbers for each example, at most: eight matrices of that side are kept for each epoch."""

_HALVES = 2
_BARE = 1e-12  # noise power, in units of the clean rows', that counts as none


@dataclass(frozen=True)
class Moments:
    """Running sums over sampled batches, each in units of the root mean square of its own clean rows.

    Every figure is kept for two halves of the rows, the even and the odd ones of each batch and class, because what
    the worst case needs is quadratic in them: a product of two estimates from other rows has no bias, while the square
    of one counts its own error as a difference between the classes (at width 128 and a thousand positives an error as
    large as the whole budget of an AUC of 0.6).

    What was added counts by the inverse of its power in the batch, because over visits precisions add up: an average
    of noises that differ by their power alone is then the noise whose precision is the mean of theirs. A few batches
    with very much noise, as at the beginning of a training, would else be all that is seen.

    And it counts alike in both classes, batch by batch. Noise differs from batch to batch, and so does the share of
    positives: sums over the rows of each class would be of other mixtures of batches, which both halves see alike, and
    so look like noise that differs between the classes where there is none.

    The sums add up: `add` gives the moments with one batch more, `merged` those of two samples together. Nothing in
    here may reach a peer.

    Attributes:
        count: rows.  (class, half)
        total: sum of the clean rows.  (class, half, width)
        square: sum of their outer products.  (class, half, width, width)
        weight: of the batches, over their noise power: n0 n1 / (n0 + n1), by which a difference between the classes'
            means of a batch counts; the same for both classes.  (class, half)
        noise: sum of the batches' mean outer products of what was added, times that.  (class, half, width, width)
    """

    count: Tensor
    total: Tensor
    square: Tensor
    weight: Tensor
    noise: Tensor

    @classmethod
    def empty(cls, width: int) -> Moments:
        """Moments of no rows."""
        if not 1 <= width <= WIDEST:
            raise UsageError(
                f"moments of rows of {width} numbers: between 1 and {WIDEST} are measured; the ledger counts wider "
                "ones, but has no worst case for them"
            )
        many = torch.zeros(2, _HALVES, width, width, dtype=torch.float64)
        count = many[..., 0, 0]
        return cls(count.clone(), many[..., 0].clone(), many, count.clone(), many.clone())

    @property
    def width(self) -> int:
        """Numbers for each example."""
        return self.total.shape[-1]

    def add(self, clean: Tensor, sent: Tensor, labels: Tensor) -> Moments:
        """These moments with one batch more; a batch that is all zero tells nothing and is left out.

        Args:
            clean: the rows before noise was added to them, after whatever else was done: what `clip` takes off a row is
                no noise, it is gone at every visit alike.  (batch, *cut)
            sent: the rows that left.  (batch, *cut)
            labels: 0 or 1.  (batch,)
        """
        rows, gone = (value.detach().flatten(start_dim=1).to("cpu", torch.float64) for value in (clean, sent))
        y = labels.detach().flatten().to("cpu")
        if rows.shape != gone.shape or rows.shape != (len(y), self.width):
            raise TensorError(
                f"moments of width {self.width} from clean rows {tuple(clean.shape)}, sent rows {tuple(sent.shape)} "
                f"and {len(y)} labels: pass the same rows"
            )
        if not bool(((y == 0) | (y == 1)).all()):
            raise LabelsError("moments: labels must be 0 or 1")
        if not all(bool(edge.isfinite()) for each in (rows, gone) if len(y) for edge in torch.aminmax(each)):
            raise TensorError("moments: rows are not finite: look at the learning rate")
        size = rows.square().mean().sqrt()
        if not size > 0:
            return self
        added = (gone - rows) / size
        rows = rows / size
        parts = [_halves(y == k) for k in (0, 1)]
        power = added.square().mean().clamp(min=_BARE)
        weights = [
            len(zero) * len(one) / max(1, len(zero) + len(one)) / power for zero, one in zip(*parts, strict=True)
        ]
        sums = [
            self._sums(rows[part], added[part], weight)
            for each in parts
            for part, weight in zip(each, weights, strict=True)
        ]
        together = (torch.stack(each) for each in zip(*sums, strict=True))
        return Moments(*(old + new.reshape(old.shape) for old, new in zip(self._parts, together, strict=True)))

    def merged(self, other: Moments) -> Moments:
        """The moments of both samples together."""
        if other.width != self.width:
            raise UsageError(f"moments of width {self.width} and of width {other.width} are of different cuts")
        return Moments(*(one + two for one, two in zip(self._parts, other._parts, strict=True)))

    # --- what was measured ---

    @property
    def counts(self) -> tuple[int, int]:
        """Rows of class 0 and of class 1."""
        zero, one = self.count.sum(-1).tolist()
        return int(zero), int(one)

    @property
    def gap(self) -> Tensor:
        """Mean of class 1 less mean of class 0.  (width,)"""
        return self.gaps(None)

    @property
    def covariances(self) -> Tensor:
        """C0 and C1, of the clean rows.  (2, width, width)"""
        return self.spreads(None)

    @property
    def noises(self) -> Tensor:
        """N0 and N1, of what was added, about zero.  (2, width, width)"""
        return self.noise.sum(1) / self.weight.sum(1)[:, None, None]

    def rows(self, half: int | None) -> Tensor:
        """Rows of each class in a half, or in both for None.  (2,)"""
        return self.count.sum(1) if half is None else self.count[:, half]

    def gaps(self, half: int | None) -> Tensor:
        """The gap in a half.  (width,)"""
        total = self.total.sum(1) if half is None else self.total[:, half]
        means = total / self.rows(half)[:, None]
        return means[1] - means[0]

    def spreads(self, half: int | None) -> Tensor:
        """The class covariances in a half.  (2, width, width)"""
        count = self.rows(half)[:, None, None]
        total, square = (each.sum(1) if half is None else each[:, half] for each in (self.total, self.square))
        mean = total[..., None] / count
        return (square - mean @ total[:, None, :]) / (count - 1)

    def noises_of(self, half: int | None) -> Tensor:
        """The noise covariances in a half.  (2, width, width)"""
        return self.noises if half is None else self.noise[:, half] / self.weight[:, half, None, None]

    # --- keeping them ---

    @property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.count, self.total, self.square, self.weight, self.noise

    @staticmethod
    def _sums(rows: Tensor, added: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        count = rows.new_tensor(len(rows))
        return count, rows.sum(0), rows.T @ rows, weight, weight * (added.T @ added) / count.clamp(min=1)

    def tensors(self) -> dict[str, Tensor]:
        """Everything, for a file or a checkpoint; of the symmetric matrices one triangle."""
        upper = torch.triu_indices(self.width, self.width)
        square, noise = (each[..., upper[0], upper[1]].contiguous() for each in (self.square, self.noise))
        return {"count": self.count, "total": self.total, "square": square, "weight": self.weight, "noise": noise}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Moments:
        """What `tensors` gave."""
        width = tensors["total"].shape[-1]
        upper = torch.triu_indices(width, width)
        whole = []
        for name in ("square", "noise"):
            full = torch.zeros(2, _HALVES, width, width, dtype=torch.float64)
            full[..., upper[0], upper[1]] = tensors[name]
            full[..., upper[1], upper[0]] = tensors[name]
            whole.append(full)
        square, noise = whole
        return cls(tensors["count"], tensors["total"], square, tensors["weight"], noise)


def _halves(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Of the rows that are chosen, every other one, and the others."""
    places = chosen.nonzero()[:, 0]
    return places[::2], places[1::2]
