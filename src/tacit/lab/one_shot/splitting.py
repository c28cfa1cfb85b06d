"""Split training on the same rows, for comparison: what it is worth, and what it tells of a label beyond its promise.

What gradients tell is measured on canaries: copies of training rows whose labels are fair coins, so that nothing but
messages can tell them. The attack knows half of them and looks at all visits of each, at the slope of its embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.align.encoder import Inputs
from tacit.audit.attacks.accumulated import accumulated
from tacit.audit.metrics.leak_auc import auc
from tacit.audit.run import attack_all
from tacit.cut.simulate import simulate
from tacit.lab.one_shot.settings import CUT
from tacit.lab.one_shot.world import World
from tacit.lab.stack.network import network_for
from tacit.models import adam
from tacit.protect.gradient import protection
from tacit.wire.record import Recorder

EPOCHS = 5
"""How often each row is visited."""

_RATE = 2e-3
_BATCHES = 100  # of an epoch, about
_CANARIES = (1000, 4096)  # at least, where there are so many rows, and at most
_SHARE = 20  # one canary for so many rows


@dataclass(frozen=True)
class Split:
    """A split training."""

    figure: float  # the AUC on the test rows
    leak: float  # of fair-coin labels, by the attack on all visits
    embedding: Tensor  # of all rows, as they are sent after the last step. (rows, CUT)


def split_trained(world: World, name: str, limit: float, *, seed: int, threads: int = 1) -> Split:
    """Train step by step, both parties in one process, and attack what was sent."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _trained(world, name, limit, seed)
    finally:
        torch.set_num_threads(before)


def _trained(world: World, name: str, limit: float, seed: int) -> Split:
    assert isinstance(world.rows, Inputs)  # pictures are not compared with it
    features, own = world.rows.tensors, world.own.tensors if any(part.shape[1] for part in world.own.tensors) else ()
    draw = torch.Generator().manual_seed(seed)
    count = min(world.train, max(_CANARIES[0], min(_CANARIES[1], world.train // _SHARE)))
    canaries = torch.randperm(world.train, generator=draw)[:count]
    order = torch.cat([canaries, torch.arange(world.train)])  # canaries first: these the recorder follows
    labels = torch.from_numpy(world.target.values).float()[order]
    labels[:count] = torch.randint(0, 2, (count,), generator=draw).float()
    bottom, top = network_for(world.inputs, width=CUT).build(seed)
    recorder = Recorder(last=0, follow=count)
    options = {} if name == "none" else {"leak_auc": limit, "visits": EPOCHS}
    trained = simulate(
        bottom=bottom, top=top, features=[part[order] for part in features], own=[part[order] for part in own],
        labels=labels, protect=protection(name, **options), optimizer=lambda module: adam(module, lr=_RATE),
        epochs=EPOCHS, batch_size=max(32, min(1024, len(order) // _BATCHES)), seed=seed, record=recorder,
    )  # fmt: skip
    view = recorder.visits().view
    (finding,) = attack_all(view, labels, [accumulated("contextual")], noise=torch.Generator().manual_seed(seed))
    z = trained.embed(features)
    scores = trained.predict([part[world.train :] for part in features], [part[world.train :] for part in own])
    truth = torch.from_numpy(world.target.values[world.train :]).float()
    return Split(float(auc(scores, truth)), finding.leak.value, z.float())
