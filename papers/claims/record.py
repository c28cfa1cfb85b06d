"""What was measured of the papers' claims, in one file of the repository."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from papers.claims import Claim, Numbers, claims, judged
from papers.claims.bench import Bench
from papers.claims.measures import MEASURES
from tacit import __version__
from tacit.disk import replaced
from tacit.errors import DataError, UsageError

__all__ = ["RECORD", "measured", "numbers_of", "read"]

RECORD = Path(__file__).parents[1] / "claims.json"
"""Verdicts and figures of every claim, and what the trainings were."""

_DIGITS = 6  # of a figure, beyond which two machines differ


def read(path: Path = RECORD) -> dict[str, Any]:
    """What is recorded: "claims", each with its verdict and what it was judged by, and the "runs" behind them."""
    return dict(json.loads(path.read_text())) if path.exists() else {"claims": {}, "runs": {}}


def numbers_of(claim: Claim, data: str, bench: Bench) -> tuple[Numbers, dict[str, Any]]:
    """The numbers of a claim on a data set, and what the training was."""
    measure = MEASURES[claim.name]
    found, about = bench.result(measure.run, data)
    numbers = {name: _rounded(value) for name, value in measure.numbers(found).items()}
    return {name: numbers[name] for name in claim.numbers}, about


def measured(
    names: Sequence[str],
    bench: Bench,
    path: Path = RECORD,
    *,
    told: Callable[[str], None],
    known: Mapping[str, Claim] | None = None,
) -> dict[str, Any]:
    """Measure and judge claims, and write each down at once; those whose data is not here stay as they are recorded.

    Args:
        names: of claims; all of them if there is none.
        bench: where they are measured.
        path: the record.
        told: called with a line for each claim and data set.
        known: the claims that there are; those of `claims.toml` if not given.
    """
    known = claims() if known is None else known
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise UsageError(f"there is no claim {', '.join(unknown)}: papers/claims.toml has them")
    wanted = [(known[name], data) for name in names or known for data in known[name].data]
    for claim, data in sorted(wanted, key=_deciding_first):
        try:
            numbers, about = numbers_of(claim, data, bench)
        except DataError as error:
            told(f"{claim.name} on {data}: not measured, {error}")
            continue
        verdict = judged(claim, numbers)
        run = f"{MEASURES[claim.name].run} on {data}"
        kept = read(path)  # again, so that two commands may work at once
        before = kept["claims"].get(claim.name, {}).get("judged", [])
        line = {"data": data, "verdict": verdict, "numbers": numbers, "run": run}
        each = sorted(
            [*(one for one in before if one["data"] != data), line], key=lambda one: claim.data.index(one["data"])
        )
        if each[0]["data"] != claim.data[0]:
            told(f"{claim.name} on {data}: {verdict}, and not recorded before {claim.data[0]} has decided")
            continue
        kept["claims"][claim.name] = {"verdict": each[0]["verdict"], "judged": each}
        kept["runs"][run] = {**about, "tacit": __version__, "torch": torch.__version__.partition("+")[0]}
        replaced(path, partial(_write, _in_order(kept)))
        told(f"{claim.name} on {data}: {verdict}, {', '.join(f'{k} {v}' for k, v in numbers.items())}")
    return read(path)


def _deciding_first(pair: tuple[Claim, str]) -> tuple[bool, str, str]:
    """First the data that decides, so that a verdict is there before what stands beside it; by training."""
    claim, data = pair
    return data != claim.data[0], data, MEASURES[claim.name].run


def _in_order(kept: dict[str, Any]) -> dict[str, Any]:
    """Claims as `claims.toml` has them, runs by name; what is no claim any more goes."""
    found = {name: kept["claims"][name] for name in claims() if name in kept["claims"]}
    used = {line["run"] for claim in found.values() for line in claim["judged"]}
    return {"claims": found, "runs": {name: kept["runs"][name] for name in sorted(used)}}


def _write(kept: dict[str, Any], file: Any) -> None:
    file.write((json.dumps(kept, indent=1) + "\n").encode())


def _rounded(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")
