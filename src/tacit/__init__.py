"""Tacit: split learning that attacks itself while it trains and keeps the leak under a limit.

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
    from tacit.cut.feature_party import FeatureParty as FeatureParty
    from tacit.cut.label_party import LabelParty as LabelParty
    from tacit.cut.simulate import simulate as simulate
    from tacit.errors import TacitError as TacitError
    from tacit.one_shot.flips import flips as flips
    from tacit.one_shot.in_process import one_shot as one_shot
    from tacit.one_shot.numbers import number_flips as number_flips
    from tacit.protect.embedding import embedding_protection as embedding_protection
    from tacit.protect.embedding.adversarial import adversarial as adversarial
    from tacit.protect.embedding.distance_correlation import distance_correlation as distance_correlation
    from tacit.protect.embedding.gaussian import gaussian as gaussian
    from tacit.protect.embedding.noise_regularization import noise_regularization as noise_regularization
    from tacit.protect.gradient import chain as chain
    from tacit.protect.gradient import protection as protection
    from tacit.protect.gradient.clip import clip as clip
    from tacit.protect.gradient.iso import iso as iso
    from tacit.protect.gradient.marvell import marvell as marvell
    from tacit.protect.gradient.matched import matched as matched
    from tacit.protect.gradient.max_norm import max_norm as max_norm
    from tacit.protect.gradient.none import none as none
    from tacit.protect.labels.randomized_response import randomized_response as randomized_response
    from tacit.wire.record import Recorder as Recorder

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
    "marvell": "tacit.protect.gradient.marvell",
    "matched": "tacit.protect.gradient.matched",
    "max_norm": "tacit.protect.gradient.max_norm",
    "noise_regularization": "tacit.protect.embedding.noise_regularization",
    "none": "tacit.protect.gradient.none",
    "number_flips": "tacit.one_shot.numbers",
    "protection": "tacit.protect.gradient",
    "randomized_response": "tacit.protect.labels.randomized_response",
    "simulate": "tacit.cut.simulate",
    "worst": "tacit.audit.run",
}
__all__ = sorted([*_HOME, "__version__", "one_shot"])  # the last is a package that can be called


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    return plugins.module("tacit", name)


def __dir__() -> list[str]:
    return sorted({*__all__, *plugins.names("tacit")})
