"""The rows of the table: what is trained, how strong it is protected, and which settings are tried for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tacit.contracts import EmbeddingProtection
from tacit.lab.exchanges import Setting
from tacit.split.protect.embedding.gaussian import gaussian

LIMIT, ODDS = 0.6, 3.0  # of the label bound of one exchange; the strengths of split training are chosen by the first
EPOCHS, BATCH, RATE = 5, 1024, 4e-3  # of split training: visits of a row, rows of a step, Adam's learning rate
RATES = (RATE, 5e-5)  # of the bottom: as fast as the top, or so slow that it hardly follows the noise
UNTRAINED = 1e-12  # a rate at which nothing is learnt


@dataclass(frozen=True)
class Split:
    """Split training of the papers' network, under one protection of gradients."""

    words: str  # as the table has it, before the protection
    source: str  # who proposed it
    protection: str  # of gradients
    strengths: tuple[Mapping[str, float], ...] = ({},)  # from weak to strong
    rates: tuple[float, ...] = RATES
    embedding: tuple[EmbeddingProtection, ...] = ()


@dataclass(frozen=True)
class Exchange:
    """What needs no step by step training: one exchange, one without labels, and what both are compared with."""

    words: str  # as the table has it
    source: str  # who proposed it
    setting: Setting
    learner: str = "trees"  # of both parties: "trees", or "network" for the papers' bottom and a network on top of it


ROWS: Mapping[str, Split | Exchange] = {
    "alone": Exchange("label party alone", "", Setting("alone")),
    "label_free": Exchange("no label sent, 8 numbers (PCA)", "ours", Setting("none", 0.5, bits=5, numbers=8)),
    "none": Split("split, ", "", "none"),
    "iso": Split("split, ", "Li 2020", "iso", tuple({"t": t} for t in (10.0, 100.0, 1000.0))),
    "max_norm": Split("split, ", "Report 2020a", "max_norm"),
    "marvell": Split("split, ", "Li 2022", "marvell", tuple({"scale": s} for s in (0.1, 1.0, 4.0, 16.0))),
    "matched": Split(
        "split, ", "ours", "matched",
        tuple({"leak_auc": auc, "visits": EPOCHS} for auc in (0.9, 0.75, 0.6)),
    ),
    "matched_noised": Split(
        "the same, noise on embeddings, ", "ours, Report 2020b", "matched", ({"leak_auc": LIMIT, "visits": EPOCHS},),
        embedding=(gaussian(snr=4.0, clip=8.0),),
    ),
    "untrained": Split("split, a bottom that is never trained, no gradient", "ours", "none", rates=(UNTRAINED,)),
    "exchange_3_bits": Exchange("one exchange, 3 bits", "ours", Setting("flips", LIMIT, bits=3, numbers=1)),
    "exchange_8_numbers": Exchange("one exchange, 8 numbers", "ours", Setting("flips", LIMIT, bits=5, numbers=8)),
    "exchange_network": Exchange(
        "the same, with split's network", "ours", Setting("flips", LIMIT, bits=5, numbers=8), "network"
    ),
    "joined": Exchange("all columns joined", "", Setting("raw", 1.0)),
}  # fmt: skip
"""By the names that the command knows."""
