"""Tacit: two-party split learning with label-leakage protection, and one exchange, a mode with a bound on labels.

The public names are those of `__all__`; `docs/ref-api.md` says what each is for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tacit import plugins
from tacit._version import __version__ as __version__

if TYPE_CHECKING:
    from tacit.audit.attacks import attack as attack
    from tacit.audit.run import attack_all as attack_all
    from tacit.audit.run import worst as worst
    from tacit.company.folder import Folder as Folder
    from tacit.contracts import View as View
    from tacit.errors import TacitError as TacitError
    from tacit.exchange.in_process import one_shot as one_shot
    from tacit.exchange.model import load as load
    from tacit.labels.flips import flips as flips
    from tacit.labels.numbers import number_flips as number_flips
    from tacit.split.feature_party import FeatureParty as FeatureParty
    from tacit.split.label_party import LabelParty as LabelParty
    from tacit.split.module import Cut as Cut
    from tacit.split.protect.embedding import embedding_protection as embedding_protection
    from tacit.split.protect.embedding.adversarial import adversarial as adversarial
    from tacit.split.protect.embedding.distance_correlation import distance_correlation as distance_correlation
    from tacit.split.protect.embedding.gaussian import gaussian as gaussian
    from tacit.split.protect.embedding.noise_regularization import noise_regularization as noise_regularization
    from tacit.split.protect.gradient import chain as chain
    from tacit.split.protect.gradient import protection as protection
    from tacit.split.protect.gradient.clip import clip as clip
    from tacit.split.protect.gradient.iso import iso as iso
    from tacit.split.protect.gradient.marvell import marvell as marvell
    from tacit.split.protect.gradient.matched import matched as matched
    from tacit.split.protect.gradient.max_norm import max_norm as max_norm
    from tacit.split.protect.gradient.none import none as none
    from tacit.split.protect.labels.randomized_response import randomized_response as randomized_response
    from tacit.split.record import Recorder as Recorder
    from tacit.split.simulate import simulate as simulate

# Where each public name lives. It is imported on first use, so that `tacit --help` does not wait for torch.
_HOME = {
    "Cut": "tacit.split.module",
    "FeatureParty": "tacit.split.feature_party",
    "Folder": "tacit.company.folder",
    "LabelParty": "tacit.split.label_party",
    "Recorder": "tacit.split.record",
    "TacitError": "tacit.errors",
    "View": "tacit.contracts",
    "adversarial": "tacit.split.protect.embedding.adversarial",
    "attack": "tacit.audit.attacks",
    "attack_all": "tacit.audit.run",
    "chain": "tacit.split.protect.gradient",
    "clip": "tacit.split.protect.gradient.clip",
    "distance_correlation": "tacit.split.protect.embedding.distance_correlation",
    "embedding_protection": "tacit.split.protect.embedding",
    "flips": "tacit.labels.flips",
    "gaussian": "tacit.split.protect.embedding.gaussian",
    "iso": "tacit.split.protect.gradient.iso",
    "load": "tacit.exchange.model",
    "marvell": "tacit.split.protect.gradient.marvell",
    "matched": "tacit.split.protect.gradient.matched",
    "max_norm": "tacit.split.protect.gradient.max_norm",
    "noise_regularization": "tacit.split.protect.embedding.noise_regularization",
    "none": "tacit.split.protect.gradient.none",
    "one_shot": "tacit.exchange.in_process",
    "number_flips": "tacit.labels.numbers",
    "protection": "tacit.split.protect.gradient",
    "randomized_response": "tacit.split.protect.labels.randomized_response",
    "simulate": "tacit.split.simulate",
    "worst": "tacit.audit.run",
}
__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    return plugins.module("tacit", name)


def __dir__() -> list[str]:
    return sorted({*__all__, *plugins.names("tacit")})
