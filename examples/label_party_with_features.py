"""Both sides have features: what is the other company's data worth, and what does using it give away?

An airline knows its aircraft and which flights came an hour late; an airport knows schedule and weather. The model is
trained twice: by the airline alone, and by both together under protection. The flights (New York, 2013) are shipped
with Tacit.

    python examples/label_party_with_features.py
    python examples/label_party_with_features.py --rows 8000 --epochs 1      # in a few seconds
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

import tacit
from tacit.audit.metrics.leak_auc import auc
from tacit.audit.standard import on_batches
from tacit.lab.data import flights
from tacit.lab.data.rows import Data, Rows, Table
from tacit.split.models import adam, wide_deep


def inputs(rows: Rows, *, airport: bool) -> tuple[list[Tensor], list[Tensor]]:
    """The feature party's tensors and the label party's own; without the airport its columns are empty."""
    theirs = [x if airport else torch.zeros_like(x) for x in rows.features]
    return theirs, list(rows.own)


def train(data: Data, *, airport: bool, epochs: int) -> tuple[float, tacit.Recorder]:
    """The test AUC, and what the airport received."""
    columns = data.inputs
    assert isinstance(columns, Table)
    bottom, top = wide_deep(
        columns.cardinalities,
        columns.numeric,
        own_cardinalities=columns.own_cardinalities,  # what makes the top take features of its own
        own_numeric=columns.own_numeric,
        generator=torch.Generator().manual_seed(0),
    )
    features, own = inputs(data.train, airport=airport)
    recorder = tacit.Recorder(last=8)
    trained = tacit.simulate(
        bottom=bottom,
        top=top,
        features=features,
        own=own,  # the top is called as top(embedding, *own)
        labels=data.train.labels,
        optimizer=lambda module: adam(module, lr=1e-2),
        epochs=epochs,
        batch_size=256,
        protect=tacit.matched(leak_auc=0.6, visits=epochs) if airport else tacit.none(),
        protect_embedding=[tacit.gaussian(snr=4.0, clip=8.0)] if airport else [],
        record=recorder,
    )
    return float(auc(trained.predict(*inputs(data.test, airport=airport)), data.test.labels)), recorder


def main() -> None:
    """Train alone, train together, compare."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--rows", type=int, default=30_000)
    options.add_argument("--epochs", type=int, default=3)
    chosen = options.parse_args()

    data = flights.load(rows=chosen.rows, by_day=False)
    alone, _ = train(data, airport=False, epochs=chosen.epochs)
    together, recorder = train(data, airport=True, epochs=chosen.epochs)
    seen = recorder.batches()
    worst = tacit.worst(on_batches(seen.view, seen.clean, data.train.labels))

    print(f"trained Wide&Deep on {len(data.train):,} flights, {float(data.train.labels.mean()):.0%} of them late")
    print(f"test AUC of the airline alone: {alone:.3f}")
    print(f"test AUC of both together, under protection: {together:.3f}")
    print(f"worst of all attacks on the labels: {worst.attack}, leak AUC {worst.leak.value:.3f}")


if __name__ == "__main__":
    main()
