"""Tacit: split learning that attacks itself while it trains and keeps the leak under a limit.

The public names, all of them:

Training in one exchange: `one_shot`, and what is sent of labels then: `flips`, `number_flips`, `sums`. Step by step:
`simulate`, `LabelParty`, `FeatureParty`, `Recorder`. `Folder` for what two companies do. Protections of the gradient:
`none`, `iso`, `max_norm`, `marvell`, `matched`, `clip`, `chain`, or by name `protection`. Of the labels:
`randomized_response`; of what embeddings tell about labels: `label_distance_correlation`. Protections of the embedding:
`distance_correlation`, `adversarial`, `noise_regularization`, `gaussian`, `quantize`, or by name
`embedding_protection`. Attacks: `attack` by name, `attack_all`, `worst`. Errors: `TacitError` and what is below it in
`tacit.errors`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tacit._version import __version__

if TYPE_CHECKING:
    from tacit.audit.attacks import attack
    from tacit.audit.run import attack_all, worst
    from tacit.company.folder import Folder
    from tacit.contracts import View
    from tacit.cut.feature_party import FeatureParty
    from tacit.cut.label_party import LabelParty
    from tacit.cut.simulate import simulate
    from tacit.errors import TacitError
    from tacit.one_shot.flips import flips
    from tacit.one_shot.in_process import one_shot
    from tacit.one_shot.numbers import number_flips
    from tacit.one_shot.sums import sums
    from tacit.protect.embedding import embedding_protection
    from tacit.protect.embedding.adversarial import adversarial
    from tacit.protect.embedding.distance_correlation import distance_correlation
    from tacit.protect.embedding.gaussian import gaussian
    from tacit.protect.embedding.noise_regularization import noise_regularization
    from tacit.protect.embedding.quantize import quantize
    from tacit.protect.gradient import chain, protection
    from tacit.protect.gradient.clip import clip
    from tacit.protect.gradient.iso import iso
    from tacit.protect.gradient.label_distance_correlation import label_distance_correlation
    from tacit.protect.gradient.marvell import marvell
    from tacit.protect.gradient.matched import matched
    from tacit.protect.gradient.max_norm import max_norm
    from tacit.protect.gradient.none import none
    from tacit.protect.labels.randomized_response import randomized_response
    from tacit.wire.record import Recorder

__all__ = [
    "FeatureParty",
    "Folder",
    "LabelParty",
    "Recorder",
    "TacitError",
    "View",
    "__version__",
    "adversarial",
    "attack",
    "attack_all",
    "chain",
    "clip",
    "distance_correlation",
    "embedding_protection",
    "flips",
    "gaussian",
    "iso",
    "label_distance_correlation",
    "marvell",
    "matched",
    "max_norm",
    "noise_regularization",
    "none",
    "number_flips",
    "one_shot",
    "protection",
    "quantize",
    "randomized_response",
    "simulate",
    "sums",
    "worst",
]

# Where each public name lives. It is imported on first use, so that `tacit --help` does not wait for torch.
_HOME = {
    "FeatureParty": "tacit.cut.feature_party",
    "Folder": "tacit.company.folder",
    "LabelParty": "tacit.cut.label_party",
    "Recorder": "tacit.wire.record",
    "TacitError": "tacit.errors",
    "View": "tacit.contracts",
    "adversarial": "tacit.protect.embedding.adversarial",
    "attack": "tacit.audit.attacks",
    "attack_all": "tacit.audit.run",
    "chain": "tacit.protect.gradient",
    "clip": "tacit.protect.gradient.clip",
    "distance_correlation": "tacit.protect.embedding.distance_correlation",
    "embedding_protection": "tacit.protect.embedding",
    "flips": "tacit.one_shot.flips",
    "gaussian": "tacit.protect.embedding.gaussian",
    "iso": "tacit.protect.gradient.iso",
    "label_distance_correlation": "tacit.protect.gradient.label_distance_correlation",
    "marvell": "tacit.protect.gradient.marvell",
    "matched": "tacit.protect.gradient.matched",
    "max_norm": "tacit.protect.gradient.max_norm",
    "noise_regularization": "tacit.protect.embedding.noise_regularization",
    "none": "tacit.protect.gradient.none",
    "number_flips": "tacit.one_shot.numbers",
    "protection": "tacit.protect.gradient",
    "quantize": "tacit.protect.embedding.quantize",
    "randomized_response": "tacit.protect.labels.randomized_response",
    "simulate": "tacit.cut.simulate",
    "sums": "tacit.one_shot.sums",
    "worst": "tacit.audit.run",
}
_PACKAGES = (
    "align", "audit", "contracts", "cut", "dependence", "errors", "lab", "ledger", "models", "one_shot", "party",
    "protect", "report", "wire",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _PACKAGES:
        return importlib.import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES})
