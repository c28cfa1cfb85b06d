"""Replicas with protections and strengths of their own, protected together: one call for each kind of protection.

A sweep trains many replicas as one batched model. Those that differ in nothing but their strength become one
protection whose strength is a tensor, one number for each of them; the formulas are the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tacit.contracts import Noise, Protected, Protection
from tacit.errors import LabelsError, TensorError, UsageError
from tacit.split.protect.gradient._base import GradientProtection, check_shapes
from tacit.split.protect.gradient._chain import Chain

Known = GradientProtection | Chain  # what can be stacked: others do not say what of them may differ


class Answer(NamedTuple):
    """What a stack of protections returns, in the caller's order of replicas."""

    value: Tensor  # the protected gradients, a new tensor. (replicas, batch, *cut)
    state: tuple[Any, ...]  # what the next call of `update` needs
    # figures of this call: power, untouched_rows, valid and stateless, each (replicas,). A protection that never falls
    # back to stateless noise has 0 there
    report: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Stacked:
    """See `stacked`."""

    protections: tuple[Known, ...]  # of the replicas, in the caller's order
    # which replicas are computed together; groups in the order of their first replica
    groups: tuple[tuple[int, ...], ...]
    _there: dict[torch.device, _Placed] = field(default_factory=dict, init=False, repr=False)

    def init(self) -> tuple[Any, ...]:
        """The state before the first step: one part for each group."""
        return tuple(self.protections[group[0]].init() for group in self.groups)

    def update(
        self,
        grad: Tensor,
        labels: Tensor,
        state: tuple[Any, ...],
        noises: Sequence[Noise],
    ) -> Answer:
        """Protect one batch of every replica in the course of a run, with one source of noise for each group.

        The answer for a replica is that of its own protection with the same noise. Bad input on a CPU raises and names
        the replica. On another device nothing is read back, except on the first call there and where
        `form` says None: a replica with bad input comes out as NaN, and its figure `valid` is 0.
        """
        self._check(grad, labels, noises)
        there = self._there.get(grad.device)
        if there is None:
            there = self._there[grad.device] = _placed(self.protections, self.groups, grad.device)
        done = []
        for number, members in enumerate(there.members):
            with there.lanes.beside(number):
                mine = _taken(grad, members), _taken(labels, members)
                try:
                    done.append(there.protections[number].update(*mine, state[number], noises[number]))
                except TensorError as error:
                    group, place = self.groups[number], _first_bad(*mine, error)
                    who = (
                        f"one of the replicas {', '.join(map(str, group))}"
                        if place is None
                        else f"replica {group[place]}"
                    )
                    raise type(error)(f"{who}: {error}") from error
        there.lanes.join()
        report = {key: _joined([_figure(part, key) for part in done], there.back) for key in FIGURES}
        value = _joined([part.value for part in done], there.back)
        return Answer(value, tuple(part.state for part in done), report)

    def form(self, state: tuple[Any, ...]) -> tuple[Hashable, ...] | None:
        """What tells the next update from others: see `GradientProtection.form`; None where a group has none."""
        firsts = (self.protections[group[0]] for group in self.groups)
        told = tuple(first.form(part) for first, part in zip(firsts, state, strict=True))
        return None if None in told else told

    def advanced(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """The state with the public step counters moved on: in replays of a graph Python's numbers stand still."""
        firsts = (self.protections[group[0]] for group in self.groups)
        return tuple(first.advanced(part) for first, part in zip(firsts, state, strict=True))

    def _check(self, grad: Tensor, labels: Tensor, noises: Sequence[Noise]) -> None:
        check_shapes(grad, labels)
        if labels.ndim != 2 or len(labels) != len(self.protections):
            raise TensorError(
                f"a gradient of shape {tuple(grad.shape)} with labels of shape {tuple(labels.shape)} is no stack of "
                f"{len(self.protections)} replicas: pass (replicas, batch, *cut) with (replicas, batch)"
            )
        if len(noises) != len(self.groups):
            raise UsageError(
                f"update() got {len(noises)} sources of noise for {len(self.groups)} groups: pass one for each of "
                "`groups`, in their order"
            )


FIGURES = ("power", "untouched_rows", "valid", "stateless")
Members = slice | Tensor | None  # a run of replicas, their numbers, or all of them


class Lanes:
    """Pieces of work that do not need each other: on CUDA side by side on streams of their own, elsewhere in turn.

    Small kernels of one piece then run while large ones of another do. What a piece reads must live until `join`.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self._streams = [torch.cuda.Stream(device) for _ in range(count)] if device.type == "cuda" else []

    def beside(self, number: int) -> AbstractContextManager[Any]:
        """Inside, a piece begins after all that was asked for so far, and what follows outside does not wait for it."""
        if not self._streams:
            return nullcontext()
        self._streams[number].wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._streams[number])

    def join(self) -> None:
        """What follows waits for all pieces."""
        for stream in self._streams:
            torch.cuda.current_stream().wait_stream(stream)


class _Placed(NamedTuple):
    """The groups' protections with their strengths on one device, and how to get at their members there."""

    protections: tuple[Known, ...]
    members: tuple[Members, ...]
    back: Tensor | None  # where each replica is among the joined groups; None where they are in order
    lanes: Lanes


def stacked(protections: Sequence[Protection]) -> Stacked:
    """Protections of several replicas as one, which computes together all that differ in nothing but their strength.

    Replicas whose groups stand one behind the other are views of the caller's tensors; others are copied there and
    back, so it pays to sort them.

    >>> from tacit.split.protect.gradient import protection
    >>> together = stacked([protection("iso", t=1.0), protection("none"), protection("iso", t=25.0)])
    >>> together.groups
    ((0, 2), (1,))
    """
    groups: dict[Hashable, list[int]] = {}
    known = []
    for replica, each in enumerate(protections):
        known.append(_known(replica, each))
        groups.setdefault(_kind(known[-1]), []).append(replica)
    if not groups:
        raise UsageError("stacked() needs at least one protection; for no protection say none()")
    return Stacked(tuple(known), tuple(tuple(group) for group in groups.values()))


def _known(replica: int, protection: Protection) -> Known:
    if isinstance(protection, Chain):
        for link in protection.links:
            _known(replica, link)
    elif not isinstance(protection, GradientProtection):
        raise UsageError(
            f"stacked(): replica {replica} has a protection of its own making, {protection!r}: only those of "
            "tacit.split.protect.gradient say what of them may differ in a stack; run it alone"
        )
    return protection


def _kind(protection: Protection) -> Hashable:
    """What two replicas must share to be computed together: everything but their strength."""
    if isinstance(protection, Chain):
        return (Chain, *(_kind(link) for link in protection.links))
    assert isinstance(protection, GradientProtection)
    same = (each.name for each in fields(protection) if each.name not in protection.strengths)  # type: ignore[arg-type]
    return (type(protection), *((name, getattr(protection, name)) for name in same))


def _together(members: Sequence[Any], device: torch.device) -> Any:
    """One protection for all members of a group.

    One alone on a CPU keeps its numbers, which are faster there; what is compiled would be compiled for each number.
    """
    first = members[0]
    if len(members) == 1 and device.type == "cpu":
        return first
    if isinstance(first, Chain):
        return Chain(tuple(_together(links, device) for links in zip(*(m.links for m in members), strict=True)))
    strengths = {
        name: torch.tensor([getattr(member, name) for member in members], dtype=torch.float64, device=device)
        for name in first.strengths
    }
    return replace(first, **strengths)


def _placed(protections: Sequence[Known], groups: Sequence[Sequence[int]], device: torch.device) -> _Placed:
    order = [replica for group in groups for replica in group]
    back = None if order == sorted(order) else torch.tensor(order, device=device).argsort()
    members: list[Members] = []
    for group in groups:
        if len(group) == len(order):
            members.append(None)
        elif group[-1] - group[0] == len(group) - 1:
            members.append(slice(group[0], group[-1] + 1))
        else:
            members.append(torch.tensor(group, device=device))
    each = tuple(_together([protections[i] for i in group], device) for group in groups)
    return _Placed(each, tuple(members), back, Lanes(len(groups), device))


def _taken(whole: Tensor, members: Members) -> Tensor:
    """The members' part of a tensor of all replicas: a view, unless they stand apart from each other."""
    if members is None:
        return whole
    return whole[members] if isinstance(members, slice) else whole.index_select(0, members)


def _joined(parts: Sequence[Tensor], back: Tensor | None) -> Tensor:
    whole = parts[0] if len(parts) == 1 else torch.cat(list(parts))
    return whole if back is None else whole.index_select(0, back)


def _figure(done: Protected, key: str) -> Tensor:
    figure = done.report.get(key)
    if figure is None:
        return torch.zeros_like(done.report["untouched_rows"])
    return figure.to(torch.float32) if key == "stateless" else figure


def _first_bad(grad: Tensor, labels: Tensor, error: TensorError) -> int | None:
    """Which member of a group the error is about; None where its input looks fine."""
    if isinstance(error, LabelsError):
        bad = ~((labels == 0) | (labels == 1)).all(-1)
    else:
        bad = ~torch.isfinite(grad.flatten(start_dim=1)).all(-1)
    return int(bad.nonzero()[0]) if bool(bad.any()) else None
