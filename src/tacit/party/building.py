"""A party from its settings: its table in the common order, its half of the model, its protection."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from tacit._version import __version__
from tacit.align.tables import Columns, Encoder, inputs_digest, labels, load
from tacit.config import Contract
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.cut.plan import Plan
from tacit.errors import UsageError
from tacit.party.aligning import Aligned
from tacit.party.folder import Folder
from tacit.party.models import build, optimizer
from tacit.protect.gradient import protection

__all__ = ["build_party"]


def build_party(
    folder: Folder, contract: Contract, rows: Aligned, plan: Plan, party: LabelParty | FeatureParty | None
) -> tuple[LabelParty | FeatureParty, dict[str, str]]:
    """The party that trains, and what must be the same whenever the run goes on.

    Args:
        folder: of the party.
        contract: what was agreed on.
        rows: what was aligned.
        plan: which of them are trained on.
        party: one that the caller made itself; else one is made of the settings.
    """
    if party is None:
        party, data = _from_settings(folder, contract, rows, plan)
        settings = repr((folder.config.model, folder.config.training.optimizer, folder.config.training.learning_rate))
    else:
        data = _check_own(party, rows)
        settings = repr([type(part).__name__ for part in (_model(party), party.optimizer)])
    guard = {
        "version": __version__,
        "contract": contract.digest,
        "alignment": rows.id,
        "data": data.hex(),
        "settings": hashlib.sha256(settings.encode()).hexdigest(),
        "protection": _protection(party),
    }
    return party, guard


def _from_settings(
    folder: Folder, contract: Contract, rows: Aligned, plan: Plan
) -> tuple[LabelParty | FeatureParty, bytes]:
    config = folder.config
    table = load(folder.data, rows.rows, config.data.columns)
    columns = Columns(config.data.categorical, config.data.numeric, config.data.flagged)
    encoder = Encoder.fit(table, columns, torch.arange(plan.train_count))
    inputs = encoder.encode(table)
    if config.role == "features":
        bottom = build(folder, config, contract, inputs)
        made = FeatureParty(bottom=bottom, features=inputs.tensors, optimizer=optimizer(bottom, config))
        return made, inputs_digest(inputs)
    assert config.data.label is not None  # the settings were checked
    assert config.protect is not None
    truth = labels(table, config.data.label, contract.loss, rows.rows)
    gradient = config.protect.gradient
    classes = int(truth.max()) + 1
    top = build(folder, config, contract, inputs, classes=classes)
    party = LabelParty(
        top=top,
        labels=truth,
        features=inputs.tensors,
        optimizer=optimizer(top, config),
        protect=protection(gradient.name, **gradient.options(contract.epochs)),
        loss=contract.loss,
    )
    return party, inputs_digest(inputs, truth)


def _check_own(party: LabelParty | FeatureParty, rows: Aligned) -> bytes:
    """A digest of the tensors that a caller brought, which must be the aligned rows."""
    own: list[Tensor] = list(party.features)
    if isinstance(party, LabelParty):
        own.append(party.labels)
    for tensor in own:
        if len(tensor) != rows.count:
            raise UsageError(
                f"the party has {len(tensor)} rows, {rows.count} are aligned: take the rows of tacit.aligned(folder)"
            )
    found = hashlib.sha256()
    for tensor in own:
        found.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.digest()


def _model(party: LabelParty | FeatureParty) -> Any:
    return party.top if isinstance(party, LabelParty) else party.bottom


def _protection(party: LabelParty | FeatureParty) -> str:
    return repr(party.protect) if isinstance(party, LabelParty) else "none"
