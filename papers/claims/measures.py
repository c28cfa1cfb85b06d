"""What is measured for each claim, from the results of the training that its figure draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import polars as pl

from papers.balanced import figures_of
from papers.bounds import BOUNDS, with_ends
from papers.claims import Numbers
from papers.claims.reading import NONE, best_margin, frontier, less, mean, median, point, q95
from papers.daily import INDUSTRY, REPORT
from papers.embedding import Lab
from papers.kinds import averaged, plain, whole
from papers.labels import Triple
from papers.progress import SCALES

__all__ = ["MEASURES", "Measure"]


@dataclass(frozen=True)
class Measure:
    """How the numbers of a claim come about.

    Attributes:
        run: the training, as `papers.claims.bench` names it.
        numbers: from its results to the claim's numbers.
    """

    run: str
    numbers: Callable[[Any], Numbers]


MAX_NORM: Triple = ("max_norm", None, None)
S4: Triple = ("marvell", "scale", 4.0)
L04: Triple = ("marvell", "detection_error", 0.4)
ISO_25: Triple = ("iso", "t", 25.0)


def _sum_kl(value: float) -> Triple:
    return ("marvell", "sum_kl", value)


# --- the observations ------------------------------------------------------------------------------------------------


def _looks(table: pl.DataFrame) -> pl.DataFrame:
    return table.unique("step", keep="first")


def _smallest(column: str, name: str) -> Callable[[pl.DataFrame], Numbers]:
    return lambda table: {name: float(_looks(table)[column].min())}  # type: ignore[arg-type]


def _slopes(table: pl.DataFrame) -> Numbers:
    looks = _looks(table)
    ratio = max(looks["slope_ratio"], key=lambda one: abs(one - 1) if one >= 1 else 1 / one - 1)
    return {"ratio": ratio, "auc": max(looks["slope_auc"], key=lambda one: abs(one - 0.5))}


# --- over training ---------------------------------------------------------------------------------------------------


def _open(layer: str) -> Callable[[pl.DataFrame], Numbers]:
    return lambda table: {attack: median(table, NONE, f"{attack}@{layer}") for attack in ("norm", "cosine")}


def _closed(layer: str) -> Callable[[pl.DataFrame], Numbers]:
    return lambda table: {attack: mean(table, S4, f"{attack}@{layer}") for attack in ("norm", "cosine")}


def _flexible(table: pl.DataFrame) -> Numbers:
    rises = 0
    for attack in ("norm", "cosine"):
        each = [mean(table, ("marvell", "scale", scale), f"{attack}@cut") for scale in SCALES]
        rises += sum(later - earlier > 0.01 for earlier, later in pairwise(each))
    return {"rises": rises}


def _pictures(table: pl.DataFrame) -> Numbers:
    return {"open": min(v for v in _open("cut")(table).values() if v is not None), **_closed("cut")(table)}


def _layers(table: pl.DataFrame, attack: str, setting: Triple) -> list[float]:
    """The mean of each layer, the first one first and the cut last."""
    prefix = f"{attack}@layer"
    depths = sorted(int(n.removeprefix(prefix)) for n in table.columns if n.removeprefix(prefix).isdigit())
    return [mean(table, setting, name) for name in (*(f"{prefix}{d}" for d in depths), f"{attack}@cut")]


def _by_layer(figure: Callable[[Sequence[float]], float], setting: Triple) -> Callable[[pl.DataFrame], Numbers]:
    return lambda table: {attack: figure(_layers(table, attack, setting)) for attack in ("norm", "cosine")}


def _layers_of_pictures(table: pl.DataFrame) -> Numbers:
    """Of the ReLU outputs, without the cut behind the last pool."""
    open_, closed = ([x for a in ("norm", "cosine") for x in _layers(table, a, one)[:-1]] for one in (NONE, S4))
    return {"open": min(open_), "closed": max(closed)}


# --- trade-offs ------------------------------------------------------------------------------------------------------

_LEAKS = ("norm@cut", "cosine@cut", "norm@layer1", "cosine@layer1")


def _panels(utilities: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from ((utility, leak) for utility in utilities for leak in _LEAKS)


def _wins(utilities: Sequence[str]) -> Callable[[pl.DataFrame], Numbers]:
    """Panels in which Marvell's frontier lies below that of isotropic noise."""

    def numbers(table: pl.DataFrame) -> Numbers:
        leads = [less(*(frontier(table, p, *panel) for p in ("marvell", "iso"))) for panel in _panels(utilities)]
        return {"panels": sum(lead is not None and lead > 0 for lead in leads)}

    return numbers


def _max_norm_panels(table: pl.DataFrame) -> Numbers:
    count = 0
    for panel in _panels(("test_loss", "test_auc")):
        worth, leaked = point(table, MAX_NORM, *panel)
        count += bool(leaked <= float(frontier(table, "marvell", *panel).at(worth)) + 0.02)
    return {"panels": count}


def _behind(table: pl.DataFrame, protection: str, utility: str, leak: str) -> float:
    """How much more leaks on a protection's frontier than under max_norm, at max_norm's utility."""
    worth, leaked = point(table, MAX_NORM, utility, leak)
    return float(frontier(table, protection, utility, leak).at(worth)) - leaked


def _norm_and_hint(table: pl.DataFrame) -> Numbers:
    panel = ("test_auc", "norm@cut")
    lead = less(frontier(table, "marvell", *panel), frontier(table, "iso", *panel))
    return {"marvell": lead, "max_norm": _behind(table, "iso", *panel)}


def _best_loss(table: pl.DataFrame) -> Numbers:
    panel = ("test_loss", "hint@cut")
    lead = less(frontier(table, "marvell", *panel), frontier(table, "iso", *panel))
    return {"iso": lead, "max_norm": -_behind(table, "marvell", *panel)}


def _strengths(table: pl.DataFrame, protection: str, low: float = 0.0, high: float = float("inf")) -> list[Triple]:
    rows = whole(plain(table)).filter(pl.col("protection") == protection)
    found = rows.select("protection", "knob", "strength").unique(maintain_order=True).rows()
    return [(p, knob, strength) for p, knob, strength in found if low < strength <= high]


def _cosine(protection: str, **between: float) -> Callable[[pl.DataFrame], Numbers]:
    """The smallest 95% quantile of the cosine leak at the cut over the strengths of a protection."""

    def numbers(table: pl.DataFrame) -> Numbers:
        each = [q95(table, one, "cosine@cut") for one in _strengths(table, protection, **between)]
        return {protection: min(each, default=None)}

    return numbers


# --- lower bounds of the detection error -----------------------------------------------------------------------------


def _bounds(table: pl.DataFrame) -> Numbers:
    settings = [NONE, *(("marvell", "detection_error", bound) for bound in BOUNDS)]
    each = [[mean(table, one, leak) for one in settings] for leak in ("norm@cut", "norm@layer1")]
    return {"rises": sum(later > earlier for line in each for earlier, later in pairwise(line))}


def _iso_table(table: pl.DataFrame) -> Numbers:
    ends = averaged(with_ends(plain(table)))
    mine, iso = (ends.filter(pl.col("setting") == name).row(0, named=True) for name in ("marvell L=0.4", "iso t=25"))
    leaks = zip(_layers(table, "norm", L04), _layers(table, "norm", ISO_25), strict=True)
    return {
        "loss": iso["end_loss"] - mine["end_loss"], "auc": mine["best_auc"] - iso["best_auc"],
        "leak": max(a - b for a, b in leaks),
    }  # fmt: skip


def _calibration(table: pl.DataFrame) -> Numbers:
    ends = averaged(whole(plain(table)))
    none, mine, max_norm = (
        float(ends.filter(pl.col("setting") == name)["test_ace"][0])
        for name in ("no noise", "marvell L=0.4", "max_norm")
    )
    return {"marvell": mine - none, "max_norm": max_norm - none}


def _detection(table: pl.DataFrame) -> Numbers:
    rows = averaged(whole(plain(table))).filter(pl.col("knob") == "detection_error")
    return {"short": max(L - error for L, error in rows.select("strength", "norm@cut error").iter_rows())}


def _precision(table: pl.DataFrame) -> Numbers:
    return {"precision": float(averaged(table).filter(pl.col("protection") == "none")["precision"][0])}


# --- by day ----------------------------------------------------------------------------------------------------------


def _daily(table: pl.DataFrame, setting: Triple, column: str) -> float:
    """The mean over the days of a seed, averaged over seeds; "norm@cut mean" is not folded."""
    protection, knob, strength = setting
    rows = table.filter((pl.col("part") == "stretch") & (pl.col("protection") == protection))
    rows = rows if knob is None else rows.filter((pl.col("knob") == knob) & (pl.col("strength") == strength))
    return float(rows.group_by("replica").agg(pl.col(column).mean())[column].mean())  # type: ignore[arg-type]


def _utility(table: pl.DataFrame, setting: Triple) -> float:
    return _daily(table, setting, "test_auc")


def _days_utility(table: pl.DataFrame) -> Numbers:
    middle = [_sum_kl(3.6), _sum_kl(1.44), _sum_kl(0.64), _sum_kl(0.49), MAX_NORM]
    between = sum(_utility(table, one) for one in middle) / len(middle)
    low, lowest = (_utility(table, _sum_kl(value)) for value in (0.16, 0.01))
    return {"first": _utility(table, NONE) - between, "second": between - low, "third": low - lowest}


def _days_cost(table: pl.DataFrame) -> Numbers:
    none = _utility(table, NONE)
    named = {"at_001": 0.01, "at_016": 0.16, "at_049": 0.49}
    return {name: none - _utility(table, _sum_kl(value)) for name, value in named.items()}


def _days_leak(table: pl.DataFrame) -> Numbers:
    values = {one[2]: one for one in REPORT if one[1] == "sum_kl"}
    order = [NONE, *(values[x] for x in (3.6, 1.44, 0.64, 0.49)), MAX_NORM, values[0.16], values[0.01]]
    each = [_daily(table, one, "norm@cut") - 0.5 for one in order]  # folded, that is |leak AUC - 0.5| of each day
    return {"swaps": sum(later > earlier for earlier, later in pairwise(each))}


def _days_reasonable(table: pl.DataFrame) -> Numbers:
    return {"low": _daily(table, _sum_kl(0.16), "norm@cut mean"), "high": _daily(table, _sum_kl(0.64), "norm@cut mean")}


def _industry_iso(table: pl.DataFrame) -> Numbers:
    worst: Triple = ("iso", "t", 1.0)
    others = [one for one in INDUSTRY if one not in (NONE, worst)]
    return {
        attack: _daily(table, worst, f"{attack}@cut mean")
        - max(_daily(table, one, f"{attack}@cut mean") for one in others)
        for attack in ("norm", "hint")
    }


def _industry_utility(table: pl.DataFrame) -> Numbers:
    low: Triple = ("iso", "t", 2.0)
    none = _utility(table, NONE)
    cost = {"at_025": _sum_kl(0.25), "at_01": _sum_kl(0.1), "max_norm": MAX_NORM}
    least = min(_utility(table, one) for one in INDUSTRY if one != low)
    return {"iso": least - _utility(table, low), **{n: (none - _utility(table, one)) / none for n, one in cost.items()}}


def _industry_hints(table: pl.DataFrame) -> Numbers:
    return {
        attack: _daily(table, MAX_NORM, f"{attack}@cut mean") - _daily(table, _sum_kl(0.25), f"{attack}@cut mean")
        for attack in ("norm", "hint")
    }


# --- every attack, and what it costs ---------------------------------------------------------------------------------


def _max_norm_attacked(table: Any) -> Numbers:
    column = next(one for one in table.columns if one.protection == "max_norm")
    return {"worst": max(row["value"] for row in column.rows() if not row["of_embeddings"])}


def _marvell_attacked(table: Any) -> Numbers:
    column = next(one for one in table.columns if one.protection.startswith("marvell"))
    rows = [row for row in column.rows() if row["on"] == "batches" and not row["of_embeddings"]]
    return {"worst": max(row["value"] for row in rows), "bound": column.bound}


def _share(table: pl.DataFrame) -> Numbers:
    seconds = dict(table.select("what", "seconds").iter_rows())
    return {"share": seconds["marvell"] / seconds["update"]}


def _milliseconds(table: pl.DataFrame) -> Numbers:
    return {"milliseconds": 1e3 * dict(table.select("what", "seconds").iter_rows())["solver"]}


# --- embeddings ------------------------------------------------------------------------------------------------------


def _dcor(lab: Lab, name: str) -> float:
    return float(lab.found[name].dcor()["value"])


def _worth(lab: Lab, name: str) -> float:
    return float(lab.found[name].utility["value"])


def _loss(lab: Lab, name: str) -> float:
    return lab.found[name].loss


def _batch_size(lab: Lab) -> Numbers:
    assert lab.noise is not None
    each = [one["value"] for _, one in sorted(lab.noise["plain"].items(), key=lambda item: int(item[0]))]
    return {"falls": each[0] - each[-1], "rises": sum(later > earlier for earlier, later in pairwise(each))}


def _training_decorrelates(lab: Lab) -> Numbers:
    return {"falls": float(lab.found["none"].dcor(kind="untrained")["value"]) - _dcor(lab, "none")}


def _decorrelation(lab: Lab) -> Numbers:
    return {"ratio": _dcor(lab, "dcor-0.1") / _dcor(lab, "none"), "auc": _worth(lab, "none") - _worth(lab, "dcor-0.1")}


def _log_robust(lab: Lab) -> Numbers:
    named = {"plain": "dcor", "log": "logdcor"}
    return {name: _dcor(lab, f"{kind}-0.1") - _dcor(lab, f"{kind}-0.01") for name, kind in named.items()}


def _batch_conclusion(lab: Lab) -> Numbers:
    falls = []
    for trained in ("", "@0.5", "@2"):
        none, mine = (lab.found[f"{name}{trained}"] for name in ("none", "logdcor-0.1"))
        falls += [mine.dcor(size)["value"] < none.dcor(size)["value"] for size in none.sizes]
    return {"sizes": sum(falls) / len(falls)}


def _kind_of_noise(lab: Lab) -> Numbers:
    pairs = [(f"noise-gaussian-{w:g}", f"noise-uniform-{w:g}") for w in (0.001, 0.025)]
    ratios = [max(_loss(lab, a) / _loss(lab, b), _loss(lab, b) / _loss(lab, a)) for a, b in pairs]
    return {"loss": max(ratios), "auc": max(abs(_worth(lab, a) - _worth(lab, b)) for a, b in pairs)}


def _weight_of_noise(lab: Lab) -> Numbers:
    most = "noise-gaussian-0.025"
    return {"loss": _loss(lab, most) - _loss(lab, "none"), "auc": _worth(lab, "none") - _worth(lab, most)}


def _each_its_own(lab: Lab) -> Numbers:
    noise, dcor, both = "noise-gaussian-0.001", "logdcor-0.01", "logdcor-0.01+noise-0.001"
    return {
        "dcor": _dcor(lab, noise) - _dcor(lab, dcor), "loss": _loss(lab, noise) - _loss(lab, dcor),
        "auc": min(_worth(lab, noise), _worth(lab, dcor)) - _worth(lab, both),
    }  # fmt: skip


def _adversary(lab: Lab) -> Numbers:
    nothing = _loss(lab, "none")
    named = {"reconstructor": "adversarial-1", "noise": "noise-1", "both": "adversarial-1+noise-1"}
    entropy = {name: float(lab.found[name].utility["test_loss"]) for name in ("none", named["both"])}
    ratios = {name: _loss(lab, setting) / nothing for name, setting in named.items()}
    return {**ratios, "entropy": entropy[named["both"]] - entropy["none"]}


def _noises(lab: Lab) -> list[str]:
    """No noise, then noise on the embedding from weak to strong."""
    return ["none", *sorted((n for n in lab.found if n.startswith("gaussian-")), key=lambda n: float(n[9:]))]


def _noise_on_embeddings(lab: Lab) -> Numbers:
    names = [name for name in _noises(lab) if name not in ("gaussian-0.15", "gaussian-0.5")]  # not in the figure
    dcor, loss = ([figure(lab, name) for name in names] for figure in (_dcor, _loss))
    return {
        "dcor": sum(later > earlier + 0.01 for earlier, later in pairwise(dcor)),
        "loss": sum(later < 0.98 * earlier for earlier, later in pairwise(loss)),
        "auc": _worth(lab, "gaussian-17.5"),
    }


def _better_than_noise(lab: Lab) -> Numbers:
    noises = _noises(lab)
    trained = [name for name in lab.found if name not in noises and "@" not in name]  # of the report's batch size
    loss, dcor = (
        best_margin(*([(_worth(lab, n), sign * figure(lab, n)) for n in names] for names in (trained, noises)))
        for figure, sign in ((_loss, 1), (_dcor, -1))
    )
    return {"loss": loss, "dcor": dcor}


MEASURES: Mapping[str, Measure] = {
    "confidence": Measure("observations", _smallest("gap_auc", "gap")),
    "upper-gradients": Measure("observations", _slopes),
    "norms": Measure("observations", _smallest("norm", "norm")),
    "acute": Measure("observations", _smallest("acute", "acute")),
    "directions": Measure("observations", _smallest("cosine", "cosine")),
    "workshop-norms": Measure("first-observations", _smallest("norm", "norm")),
    "balanced-toy": Measure("toy", figures_of),
    "balanced-hints": Measure("balanced", lambda table: {"hint": q95(table, NONE, "hint@cut")}),
    "open-book": Measure("trade-offs", _open("cut")),
    "flexible": Measure("trade-offs", _flexible),
    "strong": Measure("trade-offs", _closed("cut")),
    "first-layer-leaks": Measure("trade-offs", _open("layer1")),
    "first-layer-protected": Measure("trade-offs", _closed("layer1")),
    "pictures": Measure("trade-offs", _pictures),
    "clicks": Measure("trade-offs", _pictures),
    "layers-alike": Measure("layers", _by_layer(lambda each: max(each) - min(each), S4)),
    "layers-open": Measure("layers", _by_layer(min, NONE)),
    "layers-order": Measure("layers", _by_layer(lambda each: each[0] - each[-1], S4)),
    "layers-pictures": Measure("layers", _layers_of_pictures),
    "better-than-iso": Measure("trade-offs", _wins(("test_loss", "test_auc"))),
    "iso-and-directions": Measure("trade-offs", _cosine("iso", low=20.0, high=30.0)),
    "marvell-and-directions": Measure("trade-offs", _cosine("marvell")),
    "max-norm-matches": Measure("trade-offs", _max_norm_panels),
    "max-norm-may-fail": Measure("attacks", _max_norm_attacked),
    "every-attack": Measure("attacks", _marvell_attacked),
    "avazu-tradeoff": Measure("trade-offs", _wins(("least_loss", "test_loss", "test_auc"))),
    "skin-tradeoff": Measure("trade-offs", _wins(("least_loss", "test_loss", "test_auc"))),
    "norm-and-hint": Measure("hints", _norm_and_hint),
    "hints-read-all": Measure("hints", lambda table: {"hint": q95(table, NONE, "hint@cut")}),
    "hints-and-max-norm": Measure(
        "hints", lambda table: {"gap": -_behind(table, "marvell", "test_auc", "hint@cut")}
    ),
    "best-loss": Measure("hints", _best_loss),
    "detection-bounds": Measure("first-version", _bounds),
    "detection-error": Measure("first-version", _detection),
    "iso-table": Measure("first-version", _iso_table),
    "calibration": Measure("longer-version", _calibration),
    "days-utility": Measure("days", _days_utility),
    "days-cost": Measure("days", _days_cost),
    "days-leak": Measure("days", _days_leak),
    "days-reasonable": Measure("days", _days_reasonable),
    "top-share": Measure("labels", _precision),
    "industry-iso": Measure("days", _industry_iso),
    "industry-utility": Measure("days", _industry_utility),
    "industry-hints": Measure("days", _industry_hints),
    "no-slower": Measure("times", _share),
    "solver": Measure("times", _milliseconds),
    "batch-size": Measure("embeddings", _batch_size),
    "training-decorrelates": Measure("embeddings", _training_decorrelates),
    "decorrelation": Measure("embeddings", _decorrelation),
    "log-robust": Measure("embeddings", _log_robust),
    "batch-conclusion": Measure("embeddings", _batch_conclusion),
    "kind-of-noise": Measure("embeddings", _kind_of_noise),
    "weight-of-noise": Measure("embeddings", _weight_of_noise),
    "each-its-own": Measure("embeddings", _each_its_own),
    "adversary": Measure("table-2", _adversary),
    "noise-on-embeddings": Measure("embeddings", _noise_on_embeddings),
    "better-than-noise": Measure("embeddings", _better_than_noise),
}  # fmt: skip
"""One for each claim."""
