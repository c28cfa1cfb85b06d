"""What cells cost: three bits a row, eight numbers and no label at all beside the 256 ranks that were sent before them.

`python -m benchmarks.comparison.cells --adult FOLDER --credit FOLDER` measures what is shipped on 60,000 flights, Adult
and default credit, five seeds each, and keeps the figures of before. Those are measured once, with `--before SRC`, the
folder `src` of commit 9ecea318: the learner, ranks and head of that commit, on the same rows and the same flips.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

from tacit.disk import write
from tacit.lab.data import flights, load
from tacit.lab.exchanges import Search, Setting, Trying, world_of

OUT = Path(__file__).parents[2] / "docs" / "cells.json"
COMMIT = "9ecea318"
LIMIT, ODDS, SEEDS, FLIGHTS = 0.6, 3.0, 5, 60_000
SETTINGS: Mapping[str, Setting] = {
    "alone": Setting("alone"),
    "no label, 8 numbers": Setting("none", bits=5, numbers=8),
    "3 bits": Setting("flips", LIMIT, bits=3, numbers=1),
    "8 numbers": Setting("flips", LIMIT, bits=5, numbers=8),
}
GOALS = {"3 bits": ("width 1", 0.002, 0.004), "8 numbers": ("width 8", 0.005, None)}  # mean loss, and its upper end

_BEFORE = """
import json, sys
import numpy as np, torch
from tacit.align.encoder import Inputs
from tacit.one_shot.flips import flips
from tacit.one_shot.head import fit_head
from tacit.one_shot.learn import learner
from tacit.one_shot.ranks import Ranks
from sklearn.metrics import roc_auc_score
torch.set_num_threads(1)
made, seed = np.load(sys.argv[1]), int(sys.argv[2])
rows, own = (
    Inputs(*(torch.from_numpy(made[f"{who}{one}"]) for one in "cn"), tuple(made[f"{who}s"].tolist())) for who in "ro"
)
labels, sent, train, found = made["labels"], made["sent"], len(made["sent"]), {}
for width in (1, 8):
    coin = flips(*made["coin"].tolist(), rare="positive")
    z = learner("trees").fit(rows[:train], sent, coin, width, seed=seed, threads=1).embed(rows, threads=1)
    codes = Ranks.fit(z[:train], 256).code(z)
    head = fit_head("trees", codes, own, labels, train=train, seed=seed, threads=1)
    found[f"width {width}"] = roc_auc_score(labels[train:], head.predict(codes[train:], own[train:], threads=1))
print(json.dumps(found))
"""


def main(words: Sequence[str] | None = None) -> int:
    """Measure what cells lose; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison.cells", description=main.__doc__)
    parser.add_argument("--adult", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--credit", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--before", type=Path, metavar="SRC", help=f"the folder src of commit {COMMIT}")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE")
    given = parser.parse_args(words)
    kept: dict[str, Any] = (
        json.loads(given.out.read_text())["before"] if given.before is None else {"commit": COMMIT, "test_auc": {}}
    )
    now: dict[str, Any] = {}
    for name, seed, trying in _tried({"adult": given.adult, "credit": given.credit}, given.seeds):
        figures = {setting: trying.figure(SETTINGS[setting]) for setting in SETTINGS}
        _add(now, name, figures)
        if given.before is not None:
            _add(kept["test_auc"], name, _before(trying, given.before, seed))
        print(name, seed, *(f"{setting} {figure:.4f}" for setting, figure in figures.items()), flush=True)
    losses = {setting: _loss(now, kept["test_auc"], setting, other) for setting, (other, _, _) in GOALS.items()}
    held = [losses[one]["mean"] <= mean and (high is None or losses[one]["high"] <= high)
            for one, (_, mean, high) in GOALS.items()]  # fmt: skip
    here = f"{os.cpu_count()} cores, {platform.machine()}, {datetime.datetime.now(datetime.UTC).date().isoformat()}"
    document = {
        "command": "python -m benchmarks.comparison.cells", "machine": here, "limit": LIMIT, "odds": ODDS,
        "seeds": given.seeds, "flights": FLIGHTS, "before": kept, "test_auc": now, "loss": losses,
    }  # fmt: skip
    write(given.out, (json.dumps(document, indent=1) + "\n").encode(), durable=False)
    for setting, loss in losses.items():
        print(f"{setting}: loses {loss['mean']:+.4f} [{loss['low']:+.4f}, {loss['high']:+.4f}]")
    return int(not all(held))


def _tried(folders: Mapping[str, Path], seeds: int) -> Iterator[tuple[str, int, Trying]]:
    search = Search(limits=(LIMIT,), odds=ODDS)
    for name in ("flights", *folders):
        for seed in range(seeds):
            data = (
                flights.load(rows=FLIGHTS, seed=seed, by_day=False)
                if name == "flights"
                else load(name, folder=folders[name], seed=seed)
            )
            yield name, seed, Trying(world_of(data), search, seed, threads=1)


def _before(trying: Trying, source: Path, seed: int) -> dict[str, float]:
    """What the learner, the ranks and the head of before give on the same rows, from the same flips."""
    world = trying.world
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "rows.npz"
        both: dict[str, Any] = {}
        for who, inputs in (("r", world.rows), ("o", world.own)):
            both |= {f"{who}c": inputs.categorical.numpy(), f"{who}n": inputs.numeric.numpy()}
            both[f"{who}s"] = np.array(inputs.cardinalities, int)
        sent = trying.sent(trying.coin(LIMIT))
        np.savez(path, labels=world.target.values, sent=sent, coin=[LIMIT, ODDS], **both)
        done = subprocess.run(
            [sys.executable, "-c", _BEFORE, str(path), str(seed)], env={**os.environ, "PYTHONPATH": str(source)},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _add(every: dict[str, Any], name: str, figures: Mapping[str, float]) -> None:
    for setting, figure in figures.items():
        every.setdefault(name, {}).setdefault(setting, []).append(round(figure, 5))


def _loss(now: Mapping[str, Any], before: Mapping[str, Any], setting: str, other: str) -> dict[str, float]:
    """The mean over all pairs, and its 95% interval by Student's t."""
    pairs = np.concatenate([np.subtract(before[name][other], now[name][setting]) for name in now])
    half = float(t.ppf(0.975, len(pairs) - 1) * pairs.std(ddof=1) / np.sqrt(len(pairs)))
    mean = float(pairs.mean())
    found = {"mean": mean, "low": mean - half, "high": mean + half}
    return {name: round(value, 5) for name, value in found.items()}


if __name__ == "__main__":
    sys.exit(main())
