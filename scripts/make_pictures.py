"""Trains, attacks and draws the pictures of `docs/explain-what-leaks.md`, and fills the tables that quote these runs.

`python scripts/make_pictures.py` does all of it: some twenty trainings on the flights that ship with Tacit, with one
thread, so that the same machine finds the same figures again. They land in `docs/images/leaks.json`. With `--draw` it
only draws what lies there and fills the tables.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from docs_tables import filled, grid
from pictures_draw import histograms, overview, tradeoff, visits
from pictures_runs import CUT, LIMIT, Sizes, measure, references, settings, shown
from tacit.lab.data import flights

DOCS = Path(__file__).parent.parent / "docs"
FIGURES = DOCS / "images" / "leaks.json"
PAGES = ("explain-what-leaks.md", "explain-differential-privacy.md")

_LENGTHS = {-3.0: "1/1000", -2.0: "1/100", -1.0: "1/10", 0.0: "1", 1.0: "10"}
_ENERGIES = {-4.0: "1/10000", -2.0: "1/100", 0.0: "1", 2.0: "100"}
_COSINES = {-1.0: "opposite", 0.0: "at right angles", 1.0: "the same way"}
_CURVES = {
    "none": "no protection",
    "max_norm": "max_norm",
    "marvell": "Marvell",
    "iso": "iso",
    "matched": "matched, all visits",
    "response": "flipped labels",
    "gaussian": "proved Gaussian noise",
}

Document = Mapping[str, Any]


# --- measuring -------------------------------------------------------------------------------------------------------


def measured(sizes: Sizes, path: Path, kinds: Sequence[str] = (*_CURVES, "one_visit", "corrected")) -> Document:
    """All trainings of these kinds, written down after each of them."""
    data = flights.load(rows=sizes.rows, by_day=False)
    share = round(float(data.train.labels.mean()), 4)
    alone = references(data, sizes)
    told = {"training_rows": len(data.train), "share": share, "cut": CUT, "limit": LIMIT, **asdict(sizes)}
    runs: list[dict[str, Any]] = []
    for setting in settings(sizes):
        if setting.kind in kinds:
            runs.append(measure(setting, data, sizes))
            print(f"{setting.name}: test AUC {runs[-1]['test_auc']}, {runs[-1]['worst']}", flush=True)
            path.write_text(json.dumps({"recipe": told, "references": alone, "runs": runs}, indent=1) + "\n")
    return {"recipe": told, "references": alone, "runs": runs}


def quotable(document: Document) -> dict[str, float]:
    """Every figure that a page may quote, by a short name: the first run of a kind, or `kind:strength` for others."""
    found: dict[str, float] = {f"{name}.test_auc": value for name, value in document["references"].items()}
    for run in document["runs"]:
        key = run["kind"] if f"{run['kind']}.test_auc" not in found else f"{run['kind']}:{_strength(run)}"
        found |= {f"{key}.{name}": value for name, value in run["leaks"].items()}
        found |= {f"{key}.{name}": run[name] for name in ("test_auc", "noise")}
        found |= {f"{key}.worst": run["worst"]["value"], f"{key}.up_to": run["worst"]["high"]}
        found |= {f"{key}.slow": run["slow"]["test_auc"], f"{key}.slow_worst": run["slow"]["worst"]["value"]}
        found |= {f"{key}.visits:{n}": value for n, value in enumerate(run.get("visits", ()), start=1)}
    return found


def _strength(run: Mapping[str, Any]) -> str:
    """What tells a run from others of its kind."""
    return f"{run['certified']:.2f}" if run["certified"] else re.findall(r"=([\d.]+)", run["name"])[0]


# --- drawing ---------------------------------------------------------------------------------------------------------


def pictures(document: Document) -> dict[str, str]:
    """Every picture by its file's name."""
    by_name = {run["name"]: run for run in document["runs"]}
    sizes = Sizes(**{name: document["recipe"][name] for name in asdict(Sizes())})
    drawn = [(called, by_name[name]) for name, called in shown(sizes).items()]
    four = [one for one in drawn if one[1]["kind"] != "one_visit"]
    kinds = {
        kind: (called, [run for run in document["runs"] if run["kind"] == kind]) for kind, called in _CURVES.items()
    }
    return {
        "leaks-overview.svg": overview(),
        "leaks-norm.svg": histograms(
            four, quantity="norm", attack="norm", title="How long gradients are, by class",
            axis="length over the batch's root mean square", marks=_LENGTHS,
        ),
        "leaks-direction.svg": histograms(
            four, quantity="cosine", attack="cosine", title="Which way gradients point, by class",
            axis="direction, against the clean gradient of one late flight", marks=_COSINES,
        ),
        "leaks-residual.svg": histograms(
            four, quantity="residual", attack="residual", title="What is left outside the leading directions, by class",
            axis="energy outside a quarter of the directions, over the batch's mean", marks=_ENERGIES,
        ),
        "leaks-visits.svg": visits(drawn[1:], document["recipe"]["limit"]),
        "leaks-tradeoff.svg": tradeoff(kinds, document["recipe"]["limit"], document["references"]["frozen"]),
    }  # fmt: skip


# --- tables ----------------------------------------------------------------------------------------------------------


def tables(document: Document) -> dict[str, str]:
    """Every table that a page takes from these runs, by its name."""
    runs = document["runs"]
    return {
        "protections": grid(
            (
                "",
                "norm",
                "cosine",
                "residual",
                "likelihood",
                "network",
                "all visits",
                "**worst**",
                "test AUC",
                "slowly",
            ),
            [_attacked(run) for run in runs if "histograms" in run],
        ),
        "privacy": grid(
            ("setting", "epsilon", "proved", "worst attack", "up to", "test AUC", "slowly"),
            [_proved(run) for run in runs if run["kind"] in ("none", "response", "corrected", "gaussian", "matched")],
        ),
    }


def _attacked(run: Mapping[str, Any]) -> list[str]:
    leaks = run["leaks"]
    single = [leaks[name] for name in ("norm", "cosine", "residual", "likelihood", "learned")]
    joined = max(value for name, value in leaks.items() if name.startswith("accumulated"))
    numbers = [f"{value:.2f}" for value in (*single, joined)]
    return [f"`{run['name']}`", *numbers, f"**{run['worst']['value']:.2f}**", *_worth(run)]


def _proved(run: Mapping[str, Any]) -> list[str]:
    rate, proved = run["rate"], run["certified"]
    worst = run["worst"]
    return [
        f"`{run['name']}`",
        f"{math.log((1 - rate) / rate):.1f}" if rate else "",
        f"{proved:.2f}" if proved else "nothing",
        f"{worst['value']:.2f} ({worst['attack']})",
        f"{worst['high']:.2f}",
        *_worth(run),
    ]


def _worth(run: Mapping[str, Any]) -> tuple[str, str]:
    return f"{run['test_auc']:.3f}", f"{run['slow']['test_auc']:.3f}"


def main() -> None:
    torch.set_num_threads(1)
    if "--draw" not in sys.argv:
        measured(Sizes(), FIGURES)
    document = json.loads(FIGURES.read_text())
    for name, drawn in pictures(document).items():
        (FIGURES.parent / name).write_text(drawn)
    for name in PAGES:
        page = DOCS / name
        page.write_text(filled(page.read_text(), tables(document)))


if __name__ == "__main__":
    main()
