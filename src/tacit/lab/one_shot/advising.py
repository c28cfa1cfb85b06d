"""Which setting to take: the best that holds both limits, what it costs, and what to do where it is not worth it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from scipy.special import stdtrit

from tacit.contracts import Estimate
from tacit.errors import UsageError
from tacit.lab.one_shot.settings import Family, Setting
from tacit.lab.one_shot.trying import Trial

_UNKNOWN = (
    "Decoders knew no other column of a row here. `tacit train` also asks what is added for somebody who knows all "
    "others, and sends less where that is over the limit: --given asks the same."
)
NEAR = 0.005
"""Test AUCs that lie no further apart count as the same."""


@dataclass(frozen=True)
class Point:
    """A setting over all of its seeds."""

    setting: Setting  # that was tried
    seeds: int  # how often
    # the test AUC, the mean with its 95% interval over the seeds; the interval is infinite with one seed
    figure: Estimate
    numbers: Estimate  # the mean share of the numbers' variance that was read, likewise
    codes: Estimate  # likewise of the codes
    worst: float  # the largest over the seeds of what decoders may have read of anything
    auc: float  # the certified leak AUC of a label; of split training the largest that was measured over the seeds
    odds: float  # likewise; infinite where there is no bound
    frontier: bool = False  # whether none that holds the label limit has a better figure with less read

    def holds(self, feature_limit: float | None) -> bool:
        """Whether both limits hold."""
        return self.setting.family.keeps_labels and (feature_limit is None or self.worst <= feature_limit)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no infinity."""
        family = self.setting.family
        estimates = {
            name: {"value": estimate.value, "low": _finite(estimate.low), "high": _finite(estimate.high)}
            for name, estimate in (("figure", self.figure), ("numbers", self.numbers), ("codes", self.codes))
        }
        return {
            "setting": self.setting.words, "labels": family.labels, "bottom": family.bottom, "asked_odds": family.odds,
            "width": self.setting.width, "noise": self.setting.noise, "seeds": self.seeds, **estimates,
            "worst": self.worst, "auc": self.auc, "odds": _finite(self.odds), "frontier": self.frontier,
        }  # fmt: skip


@dataclass(frozen=True)
class Advice:
    """What to take."""

    label_limit: float  # the leak AUC of a label
    feature_limit: float | None  # the most that may be read of anything; None for none
    chosen: Point | None  # the best that holds both; None where that is to do without the partner
    sentences: tuple[str, ...]  # in plain words

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        chosen = None if self.chosen is None else self.chosen.as_dict()
        limits = {"label_limit": self.label_limit, "feature_limit": self.feature_limit}
        return {**limits, "chosen": chosen, "advice": list(self.sentences)}


def points(trials: Sequence[Trial]) -> list[Point]:
    """The settings, in the order in which they were tried, each over all of its seeds; the frontier is marked."""
    grouped: dict[Setting, list[Trial]] = {}
    for trial in trials:
        grouped.setdefault(trial.setting, []).append(trial)
    every = []
    for setting, tried in grouped.items():
        figure, numbers, codes = (
            _mean([getattr(trial, name) for trial in tried]) for name in ("figure", "numbers", "codes")
        )
        worst, auc, odds = (max(getattr(trial, name) for trial in tried) for name in ("worst", "auc", "odds"))
        every.append(Point(setting, len(tried), figure, numbers, codes, worst, auc, odds))
    return [replace(point, frontier=_on_frontier(point, every)) for point in every]


def advise(
    candidates: Sequence[Point], *, label_limit: float, feature_limit: float | None, given: bool = True
) -> Advice:
    """What to take under both limits, in words."""
    if feature_limit is not None and not 0 < feature_limit <= 1:
        raise UsageError(f"--feature-limit {feature_limit:g}: it lies above 0, nothing, and is at most 1, everything")
    alone = next(point for point in candidates if point.setting.family.labels == "alone")
    holding = [point for point in candidates if point.holds(feature_limit) and point is not alone]
    chosen = _chosen(holding, alone)
    sentences = [_first(chosen, alone, feature_limit)]
    if chosen is not None:
        sentences += [*_label_free(chosen, candidates, feature_limit), *_narrow(chosen, holding), *_asymmetric(holding)]
        sentences += _cost(chosen, alone, candidates)
    sentences += [*_beaten(candidates), *_split(candidates, label_limit)]
    if feature_limit is not None and not given:
        sentences.append(_UNKNOWN)
    return Advice(label_limit, feature_limit, chosen, tuple(sentences))


def _chosen(holding: Sequence[Point], alone: Point) -> Point | None:
    """The best; of those about as good one without labels, then the narrowest of which least is read.

    None if none helps.
    """
    best = max(holding, key=lambda point: point.figure.value, default=None)
    if best is None or best.figure.value <= alone.figure.value + NEAR:
        return None
    near = [point for point in holding if point.figure.value >= best.figure.value - NEAR]

    def costs(point: Point) -> tuple[bool, int, float, float]:
        read = point.numbers.value + point.codes.value
        return point.setting.family.labels != "none", point.setting.width, read, -point.figure.value

    return min(near, key=costs)


def _first(chosen: Point | None, alone: Point, feature_limit: float | None) -> str:
    where = "" if feature_limit is None else f" with no more than {feature_limit:g} read of anything"
    if chosen is None:
        return (
            f"Do without the partner: nothing that holds both limits{where} is better than its absence, test AUC "
            f"{alone.figure.value:.3f}. Raise a limit, withhold the columns that are read most, or try more widths, "
            "noise and rows."
        )
    return (
        f"Take {chosen.setting.words}: test AUC {spelled(chosen.figure)}, a label told with AUC {chosen.auc:.3f} and "
        f"odds {chosen.odds:.3g} at most, at worst {chosen.worst:.2f} of a column read, "
        f"{chosen.numbers.value:.0%} of the numbers and {chosen.codes.value:.0%} of the codes on average."
    )


def _label_free(chosen: Point, candidates: Sequence[Point], feature_limit: float | None) -> list[str]:
    if chosen.setting.family.labels == "none":
        which = "without a limit on them" if feature_limit is None else f"at a limit of {feature_limit:g}"
        return [f"Features are not secret {which}: send no label at all. An embedding without labels is as good."]
    tried = [point for point in candidates if point.setting.family.labels == "none"]
    holding = [point for point in tried if point.holds(feature_limit)]
    if not tried:
        return []
    if not holding:
        return ["No embedding without labels holds the feature limit: labels as they were sent make one small enough."]
    free = max(holding, key=lambda point: point.figure.value)
    gap = chosen.figure.value - free.figure.value
    return [f"Labels as they were sent are worth {gap:.3f}: the best embedding without any ({free.setting.words}) has "
            f"{free.figure.value:.3f}, and {free.numbers.value:.0%} of the numbers are read from it."]  # fmt: skip


def _narrow(chosen: Point, holding: Sequence[Point]) -> list[str]:
    wider = [p for p in holding if p.setting.family == chosen.setting.family and p.setting.width > chosen.setting.width]
    if chosen.setting.width != 1 or not wider:
        return []
    best = max(wider, key=lambda point: point.figure.value)
    return [f"One number is enough: {best.setting.width} have {best.figure.value:.3f}, and {best.numbers.value:.0%} of "
            f"the numbers are read then, not {chosen.numbers.value:.0%}."]  # fmt: skip


def _asymmetric(holding: Sequence[Point]) -> list[str]:
    """What a coin with odds brings beside the symmetric one, at the same width."""
    flipped = [point for point in holding if point.setting.family.labels == "flips" and not point.setting.noise]
    symmetric = {p.setting.width: p for p in flipped if p.setting.family.odds is None}
    pairs = [(p, symmetric[p.setting.width]) for p in flipped if p.setting.family.odds and p.setting.width in symmetric]
    if not pairs:
        return []
    skewed, plain = max(pairs, key=lambda pair: pair[0].figure.value - pair[1].figure.value)
    gap = skewed.figure.value - plain.figure.value
    if gap <= NEAR:
        return [f"Odds of {skewed.odds:.3g} bring nothing over the symmetric coin of the same AUC: keep to that."]
    return [f"At the same leak AUC, odds of {skewed.odds:.3g} instead of {plain.odds:.3g} are worth {gap:.3f}: rows "
            "that are sent as the rare class are told more surely, and fewer of them."]  # fmt: skip


def _cost(chosen: Point, alone: Point, candidates: Sequence[Point]) -> list[str]:
    bare = next((point for point in candidates if point.setting.family.labels == "raw"), None)
    words = f"It is {chosen.figure.value - alone.figure.value:.3f} better than no partner"
    if bare is not None:
        words += (
            f", and {bare.figure.value - chosen.figure.value:.3f} worse than no protection ({bare.figure.value:.3f})"
        )
    few = (
        "" if chosen.seeds > 2 else f" {chosen.seeds} seed{'' if chosen.seeds == 1 else 's'} alone: take three or more."
    )
    return [f"{words}.{few}"]


def _beaten(candidates: Sequence[Point]) -> list[str]:
    """Which flips are worse than an embedding without labels of which no more is read."""
    free = [point for point in candidates if point.setting.family.labels == "none"]

    def better(rival: Point, point: Point) -> bool:
        reads = [(each.numbers.value, each.codes.value, each.worst) for each in (rival, point)]
        no_more = all(theirs <= ours for theirs, ours in zip(*reads, strict=True))
        return no_more and rival.figure.value > point.figure.value + NEAR

    beaten = [
        point.setting.words
        for point in candidates
        if point.setting.family.labels == "flips" and any(better(rival, point) for rival in free)
    ]
    if not beaten:
        return []
    return [f"An embedding without labels is better and tells no more than: {'; '.join(beaten)}. `tacit train` would "
            "send that instead."]  # fmt: skip


def _split(candidates: Sequence[Point], label_limit: float) -> list[str]:
    matched = Family("split", "matched")
    split = next((point for point in candidates if point.setting.family == matched), None)
    if split is None:
        return []
    return [
        f"Split training under a promise of {label_limit:g} has {split.figure.value:.3f}; an attack on all visits told "
        f"labels that were fair coins with AUC {split.auc:.3f}. That is a measurement, not a bound."
    ]


def _on_frontier(point: Point, every: Sequence[Point]) -> bool:
    return point.setting.family.keeps_labels and not any(
        other.setting.family.keeps_labels
        and (other.worst, -other.figure.value) != (point.worst, -point.figure.value)
        and other.worst <= point.worst
        and other.figure.value >= point.figure.value
        for other in every
    )


def _mean(values: Sequence[float]) -> Estimate:
    """The mean with its 95% interval by Student's t."""
    mean, count = sum(values) / len(values), len(values)
    if count < 2:
        return Estimate(mean, -math.inf, math.inf)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    half = float(stdtrit(count - 1, 0.975)) * spread / math.sqrt(count)
    return Estimate(mean, mean - half, mean + half)


def spelled(estimate: Estimate) -> str:
    """A figure with half of its interval, where that is known."""
    half = estimate.high - estimate.value
    return f"{estimate.value:.3f}" + (f" ± {half:.3f}" if math.isfinite(half) else "")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
