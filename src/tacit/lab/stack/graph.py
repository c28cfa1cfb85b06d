"""A step on CUDA, captured once and replayed: some hundred kernels with one launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

__all__ = ["Replayed", "tensors_in", "with_tensors"]

_BEFORE = 3  # steps of one form that run as they are before it is captured: by then all is compiled and allocated


class Replayed:
    """Runs a step as it is until its form is steady, then captures it and replays it.

    The protections say when a step has another form than the captured one (a warm-up, a decomposition every few steps):
    such steps run as they are, on the same tensors.

    Args:
        protect: the stacked protections, with `steady` and `advanced`.
        step: the step: rows, slots and state to figures and the next state.
        shown: what the step has left for others to look at. A replay fills the captured step's tensors again, but a
            step that ran as it is in between has left others in their place.
        show: puts what `shown` gave back in its place.
    """

    def __init__(
        self,
        protect: Any,
        step: Callable[[Tensor, Tensor, Any], tuple[Tensor, Any]],
        shown: Callable[[], Any],
        show: Callable[[Any], None],
    ) -> None:
        self._protect, self._step, self._shown, self._show = protect, step, shown, show
        self._captured: Any = None  # what the captured step shows
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._seen = 0
        self._inputs: tuple[Tensor, ...] = ()
        self._figures = torch.empty(0)
        self._fixed: list[Tensor] = []  # the state's tensors that the graph reads and writes

    def step(self, rows: Tensor, slots: Tensor, state: Any, figures: Tensor) -> Any:
        """One update; its figures are written into the given tensor, and the next state is returned."""
        steady = self._protect.steady(state)
        if steady and self._graph is None and self._seen >= _BEFORE:
            state = self._capture(rows, slots, state)
        if not steady or self._graph is None:
            self._seen += steady
            return self._as_it_is(rows, slots, state, figures)
        for fixed, given in zip(self._inputs, (rows, slots), strict=True):
            fixed.copy_(given)
        self._graph.replay()
        self._show(self._captured)
        figures.copy_(self._figures)
        return self._protect.advanced(state, 1)

    def _as_it_is(self, rows: Tensor, slots: Tensor, state: Any, figures: Tensor) -> Any:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            made, following = self._step(rows, slots, state)
            figures.copy_(made)
            if self._fixed:
                following = self._into_fixed(following)
        torch.cuda.current_stream().wait_stream(self._stream)
        return following

    def _capture(self, rows: Tensor, slots: Tensor, state: Any) -> Any:
        """Record the step on tensors that stay where they are; nothing is computed yet."""
        self._inputs = rows.clone(), slots.clone()
        self._fixed = [x.clone() for x in tensors_in(state)]
        state = with_tensors(state, iter(self._fixed))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made, following = self._step(*self._inputs, state)
            self._figures = made
            self._into_fixed(following)
        self._graph, self._captured = graph, self._shown()
        return state

    def _into_fixed(self, state: Any) -> Any:
        """The state with its tensors copied to where the graph expects them."""
        for fixed, new in zip(self._fixed, tensors_in(state), strict=True):
            if new is not fixed:
                fixed.copy_(new)
        return with_tensors(state, iter(self._fixed))


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """All tensors of a tree of tuples, lists, mappings and dataclasses, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from tensors_in(value)
    elif isinstance(tree, tuple | list):
        for value in tree:
            yield from tensors_in(value)
    elif is_dataclass(tree):
        for field in fields(tree):
            yield from tensors_in(getattr(tree, field.name))


def with_tensors(tree: Any, new: Iterator[Tensor]) -> Any:
    """The same tree with other tensors in their places, in the order of `tensors_in`."""
    if isinstance(tree, Tensor):
        return next(new)
    if isinstance(tree, dict):
        return {key: with_tensors(value, new) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(with_tensors(value, new) for value in tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{field.name: with_tensors(getattr(tree, field.name), new) for field in fields(tree)})
    return tree
