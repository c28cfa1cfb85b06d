"""A step on CUDA, captured once and replayed: some hundred kernels with one launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

_BEFORE = 3  # steps of one form that run as they are before it is captured: by then all is compiled and allocated


class Replayed:
    """Runs steps of a form as they are until all is compiled and allocated, then captures one and replays it.

    The protections say which form a step has (`matched` makes its factors anew every few steps), and whether it can be
    captured. `shown` is what a step has left for others to look at, and `show` puts it back: a replay fills the
    captured step's tensors again, but a step that ran as it is in between has left others in their place.
    """

    def __init__(
        self, protect: Any, step: Callable[[Tensor, Tensor, Any], tuple[Tensor, Any]], shown: Callable[[], Any],
        show: Callable[[Any], None],
    ) -> None:  # fmt: skip
        self._protect, self._step, self._shown, self._show = protect, step, shown, show
        self._stream = torch.cuda.Stream()
        self._captured: dict[Any, tuple[torch.cuda.CUDAGraph, Tensor, Any]] = {}  # with its figures, and what it shows
        self._seen: Counter[Any] = Counter()
        self._inputs: tuple[Tensor, ...] = ()
        self._fixed: list[Tensor] = []  # the state's tensors that graphs read and write

    def step(self, rows: Tensor, slots: Tensor, state: Any, figures: Tensor) -> Any:
        """One update; its figures are written into the given tensor, and the next state is returned."""
        form = self._protect.form(state)
        if form is not None and form not in self._captured and self._seen[form] >= _BEFORE:
            state = self._capture(form, rows, slots, state)
        if form not in self._captured:
            self._seen[form] += 1
            return self._as_it_is(rows, slots, state, figures)
        for fixed, given in zip(self._inputs, (rows, slots), strict=True):
            fixed.copy_(given)
        graph, made, shown = self._captured[form]
        graph.replay()
        self._show(shown)
        figures.copy_(made)
        return self._protect.advanced(state)

    def _as_it_is(self, rows: Tensor, slots: Tensor, state: Any, figures: Tensor) -> Any:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            made, following = self._step(rows, slots, state)
            figures.copy_(made)
            if self._fixed:
                following = self._into_fixed(following)
        torch.cuda.current_stream().wait_stream(self._stream)
        return following

    def _capture(self, form: Any, rows: Tensor, slots: Tensor, state: Any) -> Any:
        """Record the step on tensors that stay where they are; nothing is computed yet."""
        pool = None
        if self._captured:  # only one graph runs at a time: they share their memory
            pool = next(iter(self._captured.values()))[0].pool()
        else:
            self._inputs = rows.clone(), slots.clone()
            self._fixed = [x.clone() for x in tensors_in(state)]
            state = with_tensors(state, iter(self._fixed))
        rows, slots = self._inputs
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):  # attacks may run beside it
            made, following = self._step(rows, slots, state)
            self._into_fixed(following)
        self._captured[form] = graph, made, self._shown()
        return state

    def _into_fixed(self, state: Any) -> Any:
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
