"""What an attacker sees and is granted, what it answers, and how that is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.contracts.sent import Noise


def _stacked(name: str, value: Tensor, like: tuple[int, int] | None = None) -> None:
    """Refuse what is no stack of batches, or one of other steps and rows than it should have."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"View.of: {name} is a {type(value).__name__}: pass one tensor (steps, batch, *cut), as torch.stack makes "
            "of the batches' tensors"
        )
    if value.ndim < 3:
        raise ValueError(
            f"View.of: {name} has shape {tuple(value.shape)}: pass (steps, batch, *cut); of a single batch "
            f"(batch, width) that is {name}[None]"
        )
    if like is not None and value.shape[:2] != like:
        raise ValueError(
            f"View.of: {name} is {tuple(value.shape)} for a gradient of {like[0]} steps of {like[1]} rows: record both "
            "at the same steps"
        )


@dataclass(frozen=True)
class View:
    """One party's transcript: the messages it sent and received, and what it had itself. It holds no truth.

    Attributes:
        role: whose eyes these are, "features" or "label".
        rows: ids of the examples in each batch, which are all of one size.  (steps, batch)
        crossed: the messages of each kind, "gradient" and "embedding", as they crossed the wire, stacked and flattened.
            (steps, batch, width)
        before: a feature party's embeddings before it protected them, likewise; None where none are noted.
    """

    role: str
    rows: Tensor
    crossed: Mapping[str, Tensor]
    before: Tensor | None = None

    @classmethod
    def of(
        cls,
        gradient: Tensor,
        *,
        rows: Tensor | None = None,
        embedding: Tensor | None = None,
        own_embedding: Tensor | None = None,
        role: str = "features",
    ) -> View:
        """A view from stacked tensors: gradients (steps, batch, *cut) and, if wanted, row ids and embeddings.

        Without row ids every row counts as another example. What is no tensor is a `TypeError`, and shapes that do not
        belong together are a `ValueError`.

        >>> view = View.of(torch.zeros(3, 4, 2))
        >>> view.gradient.shape, view.rows[2].tolist()
        (torch.Size([3, 4, 2]), [8, 9, 10, 11])
        """
        _stacked("gradient", gradient)
        steps, batch = gradient.shape[:2]
        for name, value in (("embedding", embedding), ("own_embedding", own_embedding)):
            if value is not None:
                _stacked(name, value, (steps, batch))
        if rows is None:
            rows = torch.arange(steps * batch, device=gradient.device).reshape(steps, batch)
        elif not isinstance(rows, Tensor) or rows.is_floating_point():
            kind = rows.dtype if isinstance(rows, Tensor) else type(rows).__name__
            raise TypeError(f"View.of: rows is {kind}: pass the examples' ids as a tensor of whole numbers")
        elif rows.shape != (steps, batch):
            raise ValueError(
                f"View.of: rows are {tuple(rows.shape)} for a gradient of {steps} steps of {batch} rows: pass one id "
                f"for each row, {(steps, batch)}"
            )
        crossed = {"gradient": gradient} | ({} if embedding is None else {"embedding": embedding})
        flat = {kind: stacked.flatten(start_dim=2) for kind, stacked in crossed.items()}
        return cls(role, rows, flat, None if own_embedding is None else own_embedding.flatten(start_dim=2))

    @classmethod
    def of_embeddings(cls, embedding: Tensor, *, rows: Tensor | None = None, role: str = "label") -> View:
        """A view of embeddings alone, (steps, batch, *cut): what a label party sees of a feature party.

        >>> View.of_embeddings(torch.zeros(3, 4, 2)).embedding.shape
        torch.Size([3, 4, 2])
        """
        _stacked("embedding", embedding)
        view = cls.of(embedding, rows=rows, role=role)
        return cls(role, view.rows, {"embedding": view.gradient})

    @property
    def gradient(self) -> Tensor:
        """The gradient of each step as it crossed the wire, flattened.  (steps, batch, width)"""
        return self._of("gradient")

    @property
    def embedding(self) -> Tensor:
        """The embedding of each step as it crossed the wire, flattened.  (steps, batch, width)"""
        return self._of("embedding")

    @property
    def own_embedding(self) -> Tensor:
        """The embeddings that a feature party itself has, before it protected them; as sent where none are noted.

        (steps, batch, width)
        """
        return self.embedding if self.before is None else self.before

    def _of(self, kind: str) -> Tensor:
        if kind not in self.crossed:
            raise KeyError(f"the transcript holds no {kind}: record it, or leave out the attacks that need it")
        return self.crossed[kind]


@dataclass(frozen=True)
class Known:
    """What an attacker is granted beyond its view. Each attack says in its docstring what it uses.

    Attributes:
        labels: for each row id its label where the attacker knows it, -1 where it does not.  (number of ids,)
        positive_gradient: one clean gradient of a positive example for each step.  (steps, width)
        share: the share of positives among all examples.
        prediction: for each row id what the finished model itself predicts: the honest baseline of an attack that
            looks at embeddings.  (number of ids,)
    """

    labels: Tensor | None = None
    positive_gradient: Tensor | None = None
    share: float | None = None
    prediction: Tensor | None = None


@dataclass(frozen=True)
class Guess:
    """An attacker's answer: a score for each row, higher where it believes more in a positive label.

    Attributes:
        rows: ids of the examples that were scored.  (batches, batch)
        score: what the attacker believes.  (batches, batch)
        counted: False where a row was only used for fitting and must not be judged; None where all count.
        baseline: the score that the same attacker reaches without what was received, where that is not a coin flip.
    """

    rows: Tensor
    score: Tensor
    counted: Tensor | None = None
    baseline: Tensor | None = None


class Attack(Protocol):
    """Guesses labels from a view, from what it is granted, and from randomness: never from the truth."""

    @property
    def name(self) -> str:
        """The attack's name in configs, reports and tables."""

    def __call__(self, view: View, known: Known, noise: Noise) -> Guess:
        """Score every row of the view."""


@dataclass(frozen=True)
class KnownInputs:
    """What a label party that is after the inputs is granted beyond its view.

    Attributes:
        inputs: for each row id its input where the attacker knows it, NaN in the whole row where it does not.
            (number of ids, *input)
        attribute: for each row id the code of its private attribute where it is known, -1 where it is not.
            (number of ids,)
    """

    inputs: Tensor | None = None
    attribute: Tensor | None = None


@dataclass(frozen=True)
class Reconstruction:
    """An attacker's answer about inputs: what it believes each row was.

    Attributes:
        rows: ids of the examples.  (rows,)
        value: what the attacker believes: the input itself (rows, *input), or for an attribute a score for each of its
            codes (rows, codes).
        counted: False where a row was used for fitting and must not be judged.  (rows,)
    """

    rows: Tensor
    value: Tensor
    counted: Tensor


class InputAttack(Protocol):
    """Guesses inputs from a view of the embeddings, from what it is granted, and from randomness."""

    @property
    def name(self) -> str:
        """The attack's name in configs, reports and tables."""

    def __call__(self, view: View, known: KnownInputs, noise: Noise) -> Reconstruction:
        """A belief about every row of the view."""


@dataclass(frozen=True)
class Estimate:
    """A measured figure with its 95% confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"
