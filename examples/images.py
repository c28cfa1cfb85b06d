"""Pictures at one party, labels at the other: what can be read in the embeddings of a convolutional network?

A camera shop has pictures of clothes, a brand knows which of them sell. Two trainings, without and with noise on the
embeddings; after each the shop trains a decoder, as the brand could, that paints the pictures from what was sent. The
pictures are made up; `tacit.lab.data.fashion.pictures()` reads those of Fashion-MNIST, if you have them.

    python examples/images.py
    python examples/images.py --rows 1000 --epochs 1      # in a few seconds
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

import tacit
from tacit.audit.input_attacks.decoder import decoder
from tacit.audit.input_attacks.linear_decoder import linear_decoder
from tacit.audit.inputs import attack_inputs
from tacit.audit.metrics.leak_auc import auc
from tacit.contracts import EmbeddingProtection, View
from tacit.lab.data import fashion
from tacit.split.models import conv

SELLS = torch.tensor([0, 3, 8])  # the classes that do: T-shirts, dresses, bags
QUICK = ["norm", "cosine", "residual", "likelihood", "direct_label"]  # tacit.audit.standard has all attacks on labels


def train(data: fashion.Fashion, epochs: int, protect_embedding: Sequence[EmbeddingProtection]) -> tuple[float, ...]:
    """Test AUC, the worst attack on the labels, and the share of the pixels' variance that a decoder reads."""
    sells = torch.isin(data.train.labels, SELLS).float()
    bottom, top = conv(
        channels=1, size=fashion.SIDE, cut=2, blocks=4, width=16, hidden=32, generator=torch.Generator().manual_seed(0)
    )
    recorder = tacit.Recorder(last=8)
    trained = tacit.simulate(
        bottom=bottom,
        top=top,
        features=data.train.squares,  # (rows, 1, 28, 28); the cut is (16, 7, 7)
        labels=sells,
        epochs=epochs,
        batch_size=64,
        protect=tacit.matched(leak_auc=0.6, visits=epochs),
        protect_embedding=protect_embedding,
        record=recorder,
    )
    test = auc(trained.predict(data.test.squares), torch.isin(data.test.labels, SELLS))
    seen = recorder.batches()
    noise = torch.Generator().manual_seed(0)
    label_attack = tacit.worst(tacit.attack_all(seen.view, sells, QUICK, clean=seen.clean, noise=noise))

    # What the brand gets of new pictures. It is granted half of them, with their embeddings, to learn from.
    sent = trained.embed(data.test.squares).flatten(1)
    view = View.of_embeddings(sent[None], rows=torch.arange(len(sent))[None])
    attacks = [linear_decoder(), decoder(updates=200)]
    found = attack_inputs(view, data.test.squares, attacks, noise=noise)
    left = min(one.relative.value for one in found if one.relative is not None)  # of the variance, unread
    return float(test), label_attack.leak.value, 1 - left


def main() -> None:
    """Train without and with protection of the embedding, and compare."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--rows", type=int, default=4_000)
    options.add_argument("--epochs", type=int, default=3)
    chosen = options.parse_args()

    data = fashion.generated(rows=chosen.rows, seed=0)
    print(f"trained a convolutional network on {chosen.rows:,} pictures, every gradient under matched(leak_auc=0.6)")
    protections: dict[str, list[EmbeddingProtection]] = {
        "bare embeddings": [],
        "gaussian(snr=1)": [tacit.gaussian(snr=1.0)],
    }
    for name, protect in protections.items():
        test, labels, pictures = train(data, chosen.epochs, protect)
        print(
            f"{name}: test AUC {test:.3f}, worst attack on the labels {labels:.3f}, "
            f"a decoder reads {pictures:.0%} of the pixels' variance"
        )


if __name__ == "__main__":
    main()
