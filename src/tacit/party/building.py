"""A party from its settings: its table in the common order, its half of the model, its protection."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tacit._version import __version__
from tacit.align.cache import prepare
from tacit.align.tables import Columns
from tacit.config import Contract, Gradient, Protect, meets_embedding
from tacit.contracts import Protection
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.cut.losses import LOSSES
from tacit.cut.plan import Plan
from tacit.errors import UsageError
from tacit.party.aligning import Aligned
from tacit.party.folder import Folder
from tacit.party.models import build, cuts_of, first_seed, optimizer, try_out
from tacit.protect.embedding import embedding_protection
from tacit.protect.facts import options_of
from tacit.protect.gradient import Chain, GradientProtection, chain, facts, protection

__all__ = ["build_party", "plan_of"]


def plan_of(contract: Contract, rows: Aligned) -> Plan:
    """What is done in which turn, over these rows."""
    return Plan(rows.count, contract.batch_size, contract.epochs, rows.seed, contract.test_share)


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
        model = ", ".join(f"{name} {value}" for name, value in folder.config.model if value is not None)
    else:
        data = _check_own(party, rows)
        _try_own(party, contract, folder.config.name)
        protect = folder.config.protect or Protect()  # what the settings promise, a party from Python must do as well
        if isinstance(party, FeatureParty):
            own = [(one.event.mechanism, one.event.parameters) for one in party.shield.protect]
            meets_embedding(contract.minimum.embedding, own)
            meets_embedding(protect.embedding or (), own, whose="party.toml's")
        else:
            _check_minimum(contract.minimum.gradient, contract.epochs, party.protect, whose="the contract's minimum")
            if protect.gradient is not None:
                _check_minimum(protect.gradient, contract.epochs, party.protect, whose="what party.toml promises")
            if party.loss is not LOSSES[contract.loss]:
                raise UsageError(f"the party's loss is not the contract's: pass loss={contract.loss!r} to LabelParty")
        model = type(_model(party)).__name__
    guard = {
        "version": __version__,
        "contract": contract.digest,
        "alignment": rows.id,
        "data": data.hex(),
        "model": model,
        "network": _hashed(repr(_model(party))),
        **_optimizer(party.optimizer),
        **_by_side(party),
    }
    return party, guard


def _from_settings(
    folder: Folder, contract: Contract, rows: Aligned, plan: Plan
) -> tuple[LabelParty | FeatureParty, bytes]:
    config, described = folder.config, folder.table
    assert config.protect is not None  # the settings were checked
    columns = Columns(described.categorical, described.numeric, described.flagged)
    prepared = prepare(
        folder.data,
        rows.rows,
        columns,
        folder.run_folder(contract) / "inputs",
        train=plan.train_count,
        label=described.label,
        loss=contract.loss,
    )
    inputs, truth = prepared.inputs, prepared.labels
    if config.role == "features":
        bottom = build(folder, config, contract, inputs)
        protect = [embedding_protection(one.name, **one.options()) for one in config.protect.embedding or ()]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(first_seed(config))  # for what protections learn with
            made = FeatureParty(
                bottom=bottom, features=inputs.tensors, optimizer=optimizer(bottom, config), protect=protect
            )
        return made, prepared.digest
    assert truth is not None
    assert config.protect.gradient is not None
    top = build(folder, config, contract, inputs, classes=int(truth.max()) + 1)
    party = LabelParty(
        top=top,
        labels=truth,
        features=inputs.tensors,
        optimizer=optimizer(top, config),
        protect=_gradient_protection(config.protect, contract),
        loss=contract.loss,
    )
    return party, prepared.digest


def _gradient_protection(protect: Protect, contract: Contract) -> Protection:
    assert protect.gradient is not None
    made = protection(protect.gradient.name, **protect.gradient.options(contract.epochs))
    weight = protect.label_distance_correlation
    return made if weight is None else chain(protection("label_distance_correlation", weight=weight), made)


def _check_own(party: LabelParty | FeatureParty, rows: Aligned) -> bytes:
    """A digest of the tensors that a caller brought, which must be the aligned rows."""
    own: list[Tensor] = list(party.features)
    if isinstance(party, LabelParty):
        own.append(party.labels)
    for tensor in own:
        if len(tensor) != rows.count:
            raise UsageError(
                f"the party has {len(tensor)} rows, {rows.count} are aligned: take the rows of folder.align()"
            )
    return _digest(own)


def _try_own(party: LabelParty | FeatureParty, contract: Contract, name: str) -> None:
    """Two rows through a half that a caller brought: what it gives must be what the contract says."""
    own = [tensor[:2] for tensor in party.features]
    if isinstance(party, FeatureParty):
        return try_out(party.bottom, "bottom", own, [(len(own[0]), *cuts_of(contract, [name])[0])])
    rows, device = len(party.labels[:2]), party.labels.device
    cuts = [torch.zeros(rows, *cut, device=device) for cut in cuts_of(contract, contract.feature_parties)]
    wanted: list[tuple[int, ...]] = [(rows,), (rows, 1)] if contract.loss == "binary" else [(rows, party.classes)]
    return try_out(party.top, "top", [*cuts, *own], wanted)


def _digest(tensors: Iterable[Tensor]) -> bytes:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.digest()


def _hashed(description: str) -> str:
    """A digest of an object's description; where the object lies in memory is another place at every start."""
    return hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", description).encode()).hexdigest()


def _optimizer(optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """Everything that decides how weights follow from gradients, each under its own name.

    Two starts that differ in any of it send different gradients, which the same noise must never hide.
    """
    groups = optimizer.param_groups
    names = sorted({name for group in groups for name in group} - {"params"})
    options = {name: ", ".join(str(group.get(name)) for group in groups) for name in names}
    rate = options.pop("lr", "none")
    shapes = [[tuple(param.shape) for param in group["params"]] for group in groups]
    return {
        **{f"optimizer {name}": value for name, value in options.items()},
        "learning_rate": rate,
        "optimizer": type(optimizer).__name__,
        "parameters": _hashed(repr(shapes)),
    }


def _by_side(party: LabelParty | FeatureParty) -> dict[str, str]:
    """What each side does to what it sends, and what only a label party has: what it learns."""
    if isinstance(party, FeatureParty):
        return {
            "protection": ", ".join(map(repr, party.shield.protect)) or "none",
            "hidden": party.shield.hide or "the inputs",
        }
    loss = next(name for name, function in LOSSES.items() if function is party.loss)
    same = party.targets is party.labels
    return {
        "loss": loss,
        "protection": repr(party.protect),
        "targets": "the labels" if same else _digest([party.targets]).hex(),
    }


def _check_minimum(minimum: Gradient, epochs: int, protect: Protection, *, whose: str) -> None:
    """Refuse a protection that is weaker than a minimum; of a chain, one link must reach it."""
    if minimum.name == "none":
        return
    least = protection(minimum.name, **minimum.options(epochs))
    links = protect.links if isinstance(protect, Chain) else (protect,)
    if not any(_at_least(link, least) for link in links):
        raise UsageError(
            f"{protect!r} is not at least {whose}, {minimum}: protect with "
            f"tacit.protection({minimum.name!r}, ...) of that strength or more"
        )


def _at_least(own: Protection, least: Protection) -> bool:
    """Whether a protection is of the same kind as another, in the same spelling, and in nothing weaker."""
    if not isinstance(own, GradientProtection) or type(own) is not type(least):
        return False
    return facts(own.name).weaker(options_of(own.event), options_of(least.event)) is None


def _model(party: LabelParty | FeatureParty) -> Any:
    return party.top if isinstance(party, LabelParty) else party.bottom
