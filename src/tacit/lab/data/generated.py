"""Look-alikes of the tables at any size, as tensors on any device.

Codes are drawn as frequencies fall in such data, the k-th one about 1/k as often as the first. Labels come from a
logistic model over some of the columns, with as many positives as asked, so that a network has something to learn and
something that it can't know. Nothing here needs more than torch.

>>> data = like("criteo", 1000, seed=0)
>>> data.train.features[0].shape, data.train.features[1].shape, len(data.test)
(torch.Size([900, 26]), torch.Size([900, 13]), 100)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tacit.errors import UsageError
from tacit.lab.data.rows import Data, Rows, Table

FULL_CRITEO = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652),
    *(2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
"""The different values of Criteo's 26 categories over all 45 million rows, as commonly cited: 34 million codes."""

CRITEO = tuple(min(count, 122_800) for count in FULL_CRITEO)
"""The same cut down to a million codes in all, for a tenth of the rows."""

FULL_AVAZU = (
    *(24, 7, 7, 4737, 7745, 26, 8552, 559, 36, 2686408, 6729486, 8251, 5, 4, 2626, 8, 9, 435, 4, 68, 172, 60),
)
"""The same of Avazu's 22 categories, the hour of the day first, over all 40 million rows."""

AVAZU = tuple(min(count, 200_000) for count in FULL_AVAZU)
"""The same cut down to less than half a million codes in all."""

LOOK_ALIKES: Mapping[str, Mapping[str, Any]] = {
    "criteo": {"cardinalities": CRITEO, "numeric": 13, "share": 0.256},
    "avazu": {"cardinalities": AVAZU, "numeric": 0, "share": 0.17, "days": 10},
    "adult": {
        "cardinalities": (9, 17, 15, 6, 3, 42), "numeric": 3, "own_cardinalities": (8, 7), "own_numeric": 2,
        "share": 0.24, "test_share": 0.2,
    },
    "credit": {"cardinalities": (), "numeric": 10, "own_numeric": 13, "share": 0.22, "test_share": 0.2},
    "flights": {
        "cardinalities": (4, 13, 32, 8, 20), "numeric": 18, "own_cardinalities": (17, 105, 7, 4, 7), "own_numeric": 5,
        "share": 0.086, "days": 365, "test_share": 0.2,
    },
}  # fmt: skip
"""The columns of each table that has a look-alike, codes for what is missing included, and its share of positives."""

SHARED = ("criteo", "avazu")
"""Of which both parties see all columns, as in the papers."""

CHUNK = 1 << 18
"""Rows that are drawn at once, which bounds the memory beside the result; another number draws other rows."""

_BUCKETS = 1 << 10  # different effects that the codes of a column have, by their last bits
_TELLING = 10  # columns of each kind that have an effect
_SPREAD = 1.6  # of the logits
_TURN, _TILT = 0.06, 0.02  # how much effects and frequencies change from day to day, over ten days or as over ten
_PROBE = 1 << 16  # rows by which the share of positives is set


class Drawn(NamedTuple):
    """Some rows."""

    codes: Tensor  # (rows, columns) int32
    numbers: Tensor  # (rows, columns) float32
    labels: Tensor  # (rows,) float32
    days: Tensor  # (rows,) int64


class Drawing:
    """Draws rows on one device; the same arguments on the same kind of device always give the same rows.

    Categorical columns have so many codes each; numbers lie in [0, 1], mostly near 0. With `days` rows are spread
    evenly over so many, on each of which frequencies and effects have drifted a little. The first `telling` columns of
    each kind have an effect.
    """

    def __init__(
        self, cardinalities: Sequence[int], numeric: int, share: float, seed: int, *, days: int | None = None,
        telling: int = _TELLING, device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        if not cardinalities and not numeric:
            raise UsageError("a table without columns: give cardinalities, numeric or both")
        if any(count < 1 or count >= 2**24 for count in cardinalities) or numeric < 0:
            raise UsageError(f"cardinalities {cardinalities}, numeric {numeric}: give from 1 to 2**24 - 1 codes for "
                             "each column, and no negative number of columns")  # fmt: skip
        if not 0 < share < 1 or (days is not None and days < 1):
            raise UsageError(f"share {share}, days {days}: give a share between 0 and 1, and days from 1 on")
        self.numeric, self.days = numeric, days
        self.generator = torch.Generator(device).manual_seed(seed)
        sizes = torch.tensor(cardinalities, dtype=torch.float32, device=device)
        self._sizes, self._limits = sizes, (sizes - 1).clamp_min(0).to(torch.int32)
        effective = min(telling, len(sizes)), min(telling, numeric)
        self._drift = min(1.0, 10 / (days or 10))
        turning = 1 if days is None else 2  # sets of effects, of which a day mixes its own
        self._effects = self._normal(turning, effective[0], _BUCKETS)
        self._weights = self._normal(turning, effective[1])
        self._offset, self._factor = 0.0, 1.0
        logits = self._logits(*self._inputs(torch.zeros(_PROBE, dtype=torch.int64, device=device)))
        self._factor = _SPREAD / max(float(logits.std()), 1e-6)
        self._offset = _offset_for(logits.double() * self._factor, share)

    def chunks(self, rows: int) -> Iterator[Drawn]:
        """So many rows more, a chunk at a time, spread over all days."""
        device = self.generator.device
        for start in range(0, rows, CHUNK):
            places = torch.arange(start, min(start + CHUNK, rows), device=device)
            days = places * (self.days or 1) // rows
            codes, numbers, _ = inputs = self._inputs(days)
            chances = torch.sigmoid(self._logits(*inputs))
            labels = torch.rand(len(days), generator=self.generator, device=device) < chances
            yield Drawn(codes, numbers, labels.float(), days)

    def rows(self, rows: int) -> Rows:
        """So many rows more, whole."""
        device = self.generator.device
        codes = torch.empty(rows, len(self._sizes), dtype=torch.int32, device=device)
        numbers, labels = torch.empty(rows, self.numeric, device=device), torch.empty(rows, device=device)
        days, start = torch.empty(rows, dtype=torch.int64, device=device), 0
        for drawn in self.chunks(rows):  # into their place: joined at the end, all of it would be there twice
            here = slice(start, start := start + len(drawn.labels))
            codes[here], numbers[here], labels[here], days[here] = drawn
        return Rows((codes, numbers), (), labels, None if self.days is None else days)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.generator.device)

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.generator.device)

    def _inputs(self, days: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Codes by Zipf's law (the logarithm of the rank is uniform), and numbers of which a fifth is missing."""
        uniform = self._uniform(len(days), len(self._sizes))
        if self.days is not None:
            uniform = uniform ** (1 + _TILT * self._drift * days.float())[:, None]
        ranks = uniform.mul_((self._sizes + 1).log()).exp_().sub_(1)
        codes = torch.minimum(ranks.to(torch.int32), self._limits)
        numbers = self._uniform(len(days), self.numeric)
        numbers.sub_(0.2).clamp_min_(0).div_(0.8).square_().square_()
        return codes, numbers, days

    def _logits(self, codes: Tensor, numbers: Tensor, days: Tensor) -> Tensor:
        """The logit of each row's chance to be positive; the effects turn slowly with the days."""
        total = (numbers[:, : self._weights.shape[1]] @ self._weights.T) * 2  # (rows, 2)
        for column in range(self._effects.shape[1]):
            total += self._effects[:, column, codes[:, column] & (_BUCKETS - 1)].T
        if self.days is None:
            return total[:, 0] * self._factor + self._offset
        angle = _TURN * self._drift * days.float()
        total = total[:, 0] * angle.cos() + total[:, 1] * angle.sin()
        return total * self._factor + self._offset


def _offset_for(logits: Tensor, share: float) -> float:
    """What to add to logits so that the mean chance is this share; halved until nothing is left to halve."""
    low, high = -40.0, 40.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if float(torch.sigmoid(logits + middle).mean()) < share else (low, middle)
    return (low + high) / 2


def table(  # the options of a data set, by name
    rows: int,
    cardinalities: Sequence[int],
    numeric: int,
    share: float,
    seed: int,
    *,
    days: int | None = None,
    test_share: float = 0.1,
    device: torch.device | str = "cpu",
    name: str = "generated",
    own_cardinalities: Sequence[int] = (),
    own_numeric: int = 0,
) -> Data:
    """A generated table, drawn on the device itself; the label party's own columns tell as the others do."""
    test = round(rows * test_share)
    if not 0 < test < rows:
        raise UsageError(f"{rows} rows with a share of {test_share} for testing: give enough for both sides")
    both, numbers = (*cardinalities, *own_cardinalities), numeric + own_numeric
    telling = max(_TELLING, numbers, len(both)) if own_numeric or own_cardinalities else _TELLING
    drawing = Drawing(both, numbers, share, seed, days=days, telling=telling, device=device)
    inputs = Table(tuple(cardinalities), numeric, tuple(own_cardinalities), own_numeric)
    train, tests = (_parted(drawing.rows(count), inputs) for count in (rows - test, test))
    return Data(name, train, tests, inputs)


def _parted(rows: Rows, inputs: Table) -> Rows:
    """The columns of both parties apart."""
    if not inputs.own_cardinalities and not inputs.own_numeric:
        return rows
    widths = (len(inputs.cardinalities), len(inputs.own_cardinalities)), (inputs.numeric, inputs.own_numeric)
    (codes, own_codes), (numbers, own_numbers) = (
        x.split(wide, dim=1) for x, wide in zip(rows.features, widths, strict=True)
    )
    return Rows((codes, numbers), (own_codes, own_numbers), rows.labels, rows.days)


def like(name: str, rows: int, seed: int, *, device: torch.device | str = "cpu") -> Data:
    """What `tacit.lab.data.load` gives of that name, made up."""
    made = table(rows, seed=seed, device=device, name=f"generated:{name}", **LOOK_ALIKES[name])
    return made.shared() if name in SHARED else made
