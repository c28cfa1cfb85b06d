"""The stacked step: many replicas of a split training, one batched model, leaks measured while it trains.

A replica trains as `tacit.simulate` would train it alone, with `tacit.split.models.adam`, its network's first weights
and its setting's seed: the same batches, the same noise (on a CPU), the same formulas. What differs is the order in
which rounded numbers are added up in a batched product, so results agree to rounding and not to the bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.align.batches import batches
from tacit.errors import UsageError
from tacit.lab.data.rows import Rows
from tacit.lab.stack.graph import Replayed, tensors_in, with_tensors
from tacit.lab.stack.halves import StackedBottom, StackedTop
from tacit.lab.stack.measuring import EVERY_BATCH, SAMPLED, Measure
from tacit.lab.stack.network import Network
from tacit.lab.stack.noise import CounterNoise, stacked_noise
from tacit.lab.stack.recording import Recording, Replica
from tacit.lab.sweeping.settings import Setting
from tacit.split.protect.gradient import Lanes, fused, stacked
from tacit.split.protect.labels.randomized_response import randomized_response

BETAS, EPS = (0.9, 0.999), 1e-8
FIGURES = ("loss", "size", "power", "untouched_rows", "stateless", "valid")
_Sampled = Mapping[tuple[str, str], Tensor]  # by attack and layer, (replicas,) each
_GRANTED = 0x51F15E  # of the draw of the labels that attackers know, whatever the replicas' seeds are
_FLIPS = 0xF11B5  # keeps the draw of flipped labels apart from a replica's noise


@dataclass(frozen=True)
class Steps:
    """Figures of consecutive updates, (steps, replicas) each, on the CPU: the label party's own, no peer sees any."""

    loss: Tensor  # the training loss of each batch, float64
    power: Tensor  # the squared norm of a row's noise over that of its gradient, means over the batch
    untouched_rows: Tensor  # how many gradients were sent as they are
    stateless: Tensor  # 1 where a batch got the fallback noise, or zeros were sent
    valid: Tensor  # 0 from the update on at which a replica ran away; all its other figures are NaN then
    # for each attack and layer its unfolded AUC; NaN where a batch lacks a class, or a sampled attack did not see it
    auc: Mapping[tuple[str, str], Tensor]
    error: Mapping[tuple[str, str], Tensor]  # likewise detection errors, of those attacks of which they were asked for


class Stack:
    """Replicas of one network on one data set, trained together.

    A replica whose numbers are no longer finite has run away. It is written off and goes on with zeros in their place,
    so that all others train as if nothing had happened; what its weights are from then on means nothing.

    On CUDA a step is captured once as a graph and replayed, and with `tf32` the network's products are rounded to
    TensorFloat32; protections and attacks are not. `attacks` are tried on every batch, those in `errors` judged by the
    detection error, too, `sampled` ones on the middle batch of each `advance`, at `layers` ("cut", and layers of the
    bottom by name). What the attacks need that run later is kept: the `last` batches of each `advance`, and of `follow`
    examples so many `visits`.
    """

    def __init__(  # one stack is made of all that sets it apart from a single network, by name
        self,
        rows: Rows,
        network: Network,
        settings: Sequence[Setting],
        *,
        batch_size: int,
        learning_rate: float = 1e-3,
        bottom_rate: float | None = None,
        device: torch.device | str = "cpu",
        tf32: bool = False,
        attacks: Sequence[str] = EVERY_BATCH,
        errors: Sequence[str] = (),
        sampled: Sequence[str] = SAMPLED,
        layers: Sequence[str] = ("cut", "layer1"),
        last: int = 0,
        follow: int = 0,
        visits: int = 0,
    ) -> None:
        if not settings:
            raise UsageError("a stack needs at least one setting")
        self.device = torch.device(device)
        self._products = partial(_rounded_products, tf32 and self.device.type == "cuda")
        self.network, self.settings = network, tuple(settings)
        self.batch_size = batch_size
        self._rates = {"bottom": learning_rate if bottom_rate is None else bottom_rate, "top": learning_rate}
        self.rows = rows.to(self.device)
        self.seeds = tuple(dict.fromkeys(setting.seed for setting in settings))
        seed_of = [self.seeds.index(one.seed) for one in settings]
        built = {seed: network.build(seed) for seed in self.seeds}
        self.bottom = StackedBottom([built[one.seed][0] for one in settings], seed_of, self.device)
        self.top = StackedTop([built[one.seed][1] for one in settings], seed_of, self.device)
        names = self.bottom.names
        unknown = [layer for layer in layers if layer not in ("cut", *names)]
        if unknown:
            raise UsageError(f"the bottom has no layer {', '.join(unknown)}; it has: cut, {', '.join(names)}")
        self.layers = tuple(layers)
        self.attacks = tuple(attacks)
        self.done = torch.zeros((), dtype=torch.int64, device=self.device)  # steps so far, where a graph can move it
        self.alive = torch.ones(len(settings), dtype=torch.bool, device=self.device)  # whether it has not run away
        self.protect = stacked([one.build() for one in settings])
        self.noises = [stacked_noise([settings[i].seed for i in group], self.done) for group in self.protect.groups]
        self._targets = _flipped(settings, self.rows.labels)
        chosen = torch.rand(len(rows), generator=torch.Generator().manual_seed(_GRANTED)) < 0.5
        self.measure = Measure(self.attacks, self.rows.labels, chosen.to(self.device), errors=errors, often=True)
        rare = [name for name in sampled if name not in attacks]
        self.sample = Measure(rare, self.rows.labels, chosen.to(self.device))
        self._attacking, self._tables, self._aside = (Lanes(1, self.device) for _ in range(3))
        # runs sampled attacks aside; more threads than one for them would keep the training from starting its kernels
        self._sampler = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))
        self._received: tuple[Tensor, dict[str, Tensor], dict[str, Tensor]] | None = None
        on_cuda = self.device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            [
                {"params": list(half.weights.values()), "lr": rate}
                for half, rate in zip((self.bottom, self.top), self._rates.values(), strict=True)
            ],
            betas=BETAS, eps=EPS, capturable=on_cuda, fused=on_cuda,
        )  # fmt: skip
        self.recording = Recording(seed_of, len(rows), last=last, follow=follow, visits=visits)
        self._replayed = Replayed(self.protect, self._step, self._shown, self._show) if on_cuda else None
        self.remembered: Any = self.protect.init()  # by the protections

    def plan(self, epoch: int) -> Tensor:
        """The rows of each batch of one shuffled epoch, for each seed.  (seeds, steps, batch)"""
        each = [torch.stack(list(batches(len(self.rows), self.batch_size, epoch=epoch, seed=s))) for s in self.seeds]
        return torch.stack(each)

    def advance(self, plan: Tensor, progress: Callable[[int], None] = lambda done: None) -> Steps:
        """Train on the batches of a plan, as `plan` makes it or in any other order.  (seeds, steps, batch)"""
        if plan.ndim != 3 or len(plan) != len(self.seeds):
            raise UsageError(f"a plan is (seeds, steps, batch) with {len(self.seeds)} seeds, not {tuple(plan.shape)}")
        steps, kinds = plan.shape[1], len(FIGURES) + len(self.layers) * (len(self.attacks) + len(self.measure.errors))
        slots = self.recording.slots(plan).to(self.device)
        plan = plan.to(self.device)
        figures = torch.empty(steps, kinds, len(self.settings), dtype=torch.float64, device=self.device)
        sampled: Callable[[], _Sampled] = dict
        for step in range(steps):
            rows, where = plan[:, step], slots[:, step]
            if self._replayed is None:
                figures[step], self.remembered = self._step(rows, where, self.remembered)
            else:
                self.remembered = self._replayed.step(rows, where, self.remembered, figures[step])
            if step == steps // 2:
                sampled = self._begin_sample()
            if steps - step <= self.recording.last:
                self.recording.keep_last()
            progress(step + 1)
        return self._read(figures.cpu(), sampled())

    def _step(self, rows: Tensor, slots: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One update of all replicas, as tensors alone: its figures (kinds, replicas) and the protections' next state.

        Rows, and the slots in which visits of followed ones are kept, are (seeds, batch).
        """
        for noise in self.noises:
            if isinstance(noise, CounterNoise):
                noise.rewind()
        features = [x[rows] for x in self.rows.features]
        own = features if self.rows.shared else [x[rows] for x in self.rows.own]
        ids = self._all(rows)  # (replicas, batch)
        labels = self.rows.labels[ids]
        x, wide = self.bottom.start(features), self.top.start(own)
        with self._products():
            outputs = self.bottom.run(x)
            z = self.bottom.by_replica(outputs[-1])  # (replicas, batch, *cut)
            leaf = z.detach().requires_grad_()
            loss = _mean_loss(self.top.logits(leaf, wide), self._target(ids, labels))
            for_top = [*self.top.weights.values(), *_leaf(wide)]
            *of_top, clean = torch.autograd.grad(loss.sum(), [*for_top, leaf])
        embedding, clean = self._contained(leaf.detach()), self._contained(clean)
        with self._attacking.beside(0):
            positives = self._positives(outputs, clean, labels)
        sent, state, report = self.protect.update(clean, labels, state, self.noises)
        self._attacking.join()  # it has read weights that are about to change
        self.alive.logical_and_(report["valid"])
        sent = self._checked(sent)
        received = dict.fromkeys(self.layers, sent)
        with self._attacking.beside(0):
            at_cut = [name for name in self.layers if self._at_cut(name)]
            found = {name: self.measure(ids, {name: sent}, positives) for name in at_cut}
        inner = {name: outputs[self.bottom.names.index(name)] for name in self.layers if name not in at_cut}
        for_bottom = [*self.bottom.weights.values(), *_leaf(x)]
        with self._products():
            gradients = torch.autograd.grad(z, [*for_bottom, *inner.values()], grad_outputs=sent)
        of_bottom, of_inner = gradients[: len(for_bottom)], gradients[len(for_bottom) :]
        received |= {name: self._checked(self.bottom.by_replica(g)) for name, g in zip(inner, of_inner, strict=True)}
        self._received = ids, received, positives
        with self._attacking.beside(0):
            found |= {name: self.measure(ids, {name: received[name]}, positives) for name in inner}
        self._update(features, of_bottom, own, of_top)
        self.recording.see(ids, self._all(slots), embedding, sent, clean)
        self._attacking.join()
        self._tables.join()
        reported = [report[name].double() for name in FIGURES[2:-1]] + [self.alive.double()]
        figures = torch.stack([loss.detach().double(), _mean_square(clean).double(), *reported])
        return torch.cat([figures, *(found[name] for name in self.layers)]), state

    def _shown(self) -> tuple[Any, ...]:
        return self.recording.now, self._received

    def _show(self, shown: tuple[Any, ...]) -> None:
        self.recording.now, self._received = shown

    def _begin_sample(self) -> Callable[[], _Sampled]:
        """Try the sampled attacks on the batch that was seen last; on CUDA the training goes on beside them."""
        seen = self._received
        if self.device.type == "cpu":
            found = self._sampled(seen, nullcontext())
            return lambda: found
        seen = with_tensors(seen, iter([x.clone() for x in tensors_in(seen)]))  # the graph will write over them
        return self._sampler.submit(self._sampled, seen, self._aside.beside(0)).result

    def _sampled(self, seen: Any, lane: AbstractContextManager[Any]) -> _Sampled:
        """What the sampled attacks make of a batch.  (replicas,) each"""
        places = [(attack, layer) for layer in self.layers for attack in self.sample.names]
        with lane:
            return dict(zip(places, self.sample(*seen).cpu(), strict=True)) if places else {}

    def _update(
        self, features: Sequence[Tensor], of_bottom: Sequence[Tensor], own: Sequence[Tensor], of_top: Sequence[Tensor]
    ) -> None:
        self.done += 1
        halves = ((self.bottom, features, of_bottom), (self.top, own, of_top))
        for (half, inputs, gradients), rate in zip(halves, self._rates.values(), strict=True):
            for weight, gradient in zip(half.weights.values(), gradients, strict=False):
                weight.grad = gradient
            rest = gradients[len(half.weights) :]
            with self._tables.beside(0):
                half.update_table(inputs, rest[0] if rest else None, self.done, rate=rate, betas=BETAS, eps=EPS)
        self.optimizer.step()

    def _positives(self, outputs: Sequence[Tensor], clean: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """For each layer the clean gradient of the first positive row of each replica's batch.  (replicas, width)

        Batches are shuffled, so the first positive is any positive. It is sent back through the layers alone, as a
        batch of one row.
        """
        which = labels.argmax(-1)
        given = clean[torch.arange(len(clean), device=clean.device), which][:, None]  # (replicas, 1, *cut)
        found = {"cut": given, **dict.fromkeys(self.layers, given)}
        names = [name for name in self.layers if not self._at_cut(name)]
        if names:
            row = self.bottom.one_row(outputs[0].detach(), which).requires_grad_()
            rest = [row, *self.bottom.run(row, first=1)]
            wanted = [rest[self.bottom.names.index(name)] for name in names]
            back = torch.autograd.grad(rest[-1], wanted, grad_outputs=self.bottom.joined(given))
            found |= {name: self.bottom.by_replica(g) for name, g in zip(names, back, strict=True)}
        return {name: self._checked(found[name].flatten(1)) for name in self.layers}

    def _at_cut(self, layer: str) -> bool:
        """Whether a layer is the cut itself, as the last one of a table is; of pictures a pool lies between."""
        return layer == "cut" or (layer == self.bottom.names[-1] and not self.bottom.pictures)

    def _contained(self, x: Tensor) -> Tensor:
        """The same with zeros for every replica that has run away, now or before; nothing waits for a device."""
        x, alive = finite_or_zero(x, self.alive)
        self.alive.copy_(alive)
        return x

    def _checked(self, x: Tensor) -> Tensor:
        """The same on a CPU, where attacks refuse what is not finite; elsewhere they answer NaN, for that replica."""
        return self._contained(x) if self.device.type == "cpu" else x

    def _all(self, x: Tensor) -> Tensor:
        """What belongs to each seed's batch, for each replica.  (seeds, batch) -> (replicas, batch)"""
        return self.bottom.by_seed(x).expand(len(self.settings), -1)

    def _target(self, ids: Tensor, labels: Tensor) -> Tensor:
        """What the loss is computed with: the labels, or what a replica made of them before training."""
        if self._targets is None:
            return labels
        which, targets = self._targets
        return labels.index_put((which,), targets.gather(1, ids[which]))

    @torch.no_grad()
    def logits(self, rows: Rows, batch: int | None = None) -> Tensor:
        """Every replica's logits for the same rows.  (replicas, rows)"""
        size = batch or (256 if self.bottom.pictures else 8192)
        parts = []
        for start in range(0, len(rows), size):
            some = rows[start : start + size].to(self.device)
            features, own = ([x[None] for x in each] for each in (some.features, some.own))
            z = self.bottom.by_replica(self.bottom.run(self.bottom.start(features))[-1])
            parts.append(self.top.logits(z, self.top.start(own)))
        return torch.cat(parts, dim=1)

    def models(self, replica: int) -> tuple[nn.Module, nn.Module]:
        """One replica's two halves as ordinary modules, on the CPU."""
        bottom, top = self.network.build(self.settings[replica].seed)
        bottom.load_state_dict(self.bottom.state_of(replica))
        top.load_state_dict(self.top.state_of(replica))
        return bottom, top

    def transcript(self, replica: int) -> Replica:
        """What one replica's feature party saw of the last batches, and of the followed examples."""
        return Replica(self.recording, replica)

    def _read(self, figures: Tensor, sampled: _Sampled) -> Steps:
        """Columns by name.  (steps, kinds, replicas) and, of the middle step, (replicas,)"""
        named = dict(zip(FIGURES, figures.unbind(1), strict=False))
        kinds = [("auc", name) for name in self.attacks] + [("error", name) for name in self.measure.errors]
        found: dict[str, dict[tuple[str, str], Tensor]] = {"auc": {}, "error": {}}
        for values, (layer, (kind, name)) in zip(
            figures[:, len(FIGURES) :].unbind(1), itertools.product(self.layers, kinds), strict=True
        ):
            found[kind][name, layer] = values
        auc = found["auc"]
        for place, values in sampled.items():
            auc[place] = torch.full_like(figures[:, 0], torch.nan)
            auc[place][len(figures) // 2] = values
        power = named["power"] / named["size"].clamp(min=1e-300)
        away = named["valid"] == 0
        of_others = {name: values.masked_fill(away, torch.nan) for name, values in (named | {"power": power}).items()}
        areas, errors = (
            {place: values.masked_fill(away, torch.nan) for place, values in each.items()} for each in found.values()
        )
        return Steps(
            of_others["loss"], of_others["power"], of_others["untouched_rows"], of_others["stateless"], named["valid"],
            areas, errors,
        )  # fmt: skip


@fused
def _mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of each replica's batch.  (replicas,)"""
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(-1)


@fused
def _mean_square(x: Tensor) -> Tensor:
    return x.flatten(2).square().sum(-1).mean(-1)


@contextmanager
def _rounded_products(tf32: bool) -> Iterator[None]:
    """Float32 products on CUDA have ten bits of each factor where asked for, in a tenth of the time."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if tf32 else before
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def _leaf(x: Tensor | None) -> tuple[Tensor, ...]:
    """The input itself, where its gradient is wanted for the table behind it."""
    return () if x is None or not x.requires_grad else (x,)


def _flipped(settings: Sequence[Setting], labels: Tensor) -> tuple[Tensor, Tensor] | None:
    """Which replicas train with flipped labels, and their targets.  (flipping,), (flipping, rows)"""
    which = [place for place, one in enumerate(settings) if one.flips]
    if not which:
        return None
    made = [
        randomized_response(float(settings[i].strength or 0.0))(
            labels.cpu(), torch.Generator().manual_seed((settings[i].seed + _FLIPS) % 2**64)
        ).targets
        for i in which
    ]
    return torch.tensor(which, device=labels.device), torch.stack(made).to(labels.device)


# --- replicas that run away ------------------------------------------------------------------------------------------


LIMIT = 1e15
"""What is larger at the cut has run away: its squares, and noise for it, soon fit no float32."""


def finite_or_zero(x: Tensor, alive: Tensor) -> tuple[Tensor, Tensor]:
    """Zeros for replicas that are not alive, or whose numbers are not finite or beyond `LIMIT`; and who is left.

    >>> kept, alive = finite_or_zero(torch.tensor([[1.0, 2.0], [3.0, torch.inf]]), torch.tensor([True, True]))
    >>> kept.tolist(), alive.tolist()
    ([[1.0, 2.0], [0.0, 0.0]], [True, False])
    """
    if not x.is_cuda and bool((alive & _bounded(x)).all()):  # nothing waits for a device; a CPU is spared the copy
        return x, alive
    return _masked(x, alive)


@fused
def _masked(x: Tensor, alive: Tensor) -> tuple[Tensor, Tensor]:
    left = alive & _bounded(x)
    return torch.where(left.reshape(-1, *[1] * (x.ndim - 1)), x, 0.0), left


def _bounded(x: Tensor) -> Tensor:
    """Whether all of a replica's numbers are within bounds, which NaN is not.  (replicas,)"""
    each = tuple(range(1, x.ndim))
    return torch.maximum(x.amax(each), -x.amin(each)) < LIMIT
