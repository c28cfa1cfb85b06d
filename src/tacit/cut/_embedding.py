"""A feature party's protections at work: what is hidden, what goes out, and what the bottom learns on the side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tacit.contracts import EmbeddingProtection, Message, Noise, NoiseSource, Regularizer, StepNoise, noise_source
from tacit.cut.tensors import evaluating, finite
from tacit.errors import TensorError, UsageError


@dataclass
class Opened:
    """A step's embedding on its way out, and what is needed of it until its gradient is back."""

    sent: Tensor  # as it goes out, with its graph
    hidden: list[Tensor]  # what is hidden in this step, where a protection adds a loss
    places: list[Tensor]  # the embedding before each protection
    noise: NoiseSource  # of this step
    losses: list[Tensor] = field(default_factory=list)  # of the protections

    @property
    def clean(self) -> Tensor:
        """The embedding before any protection, which its own party may look at; not to be sent."""
        return (self.places[0] if self.places else self.sent).detach()


class Shield:
    """All protections of one feature party, in their order.

    Args:
        protect: the protections.
        bottom: the model whose embeddings they protect.
        features: the party's features, of which two rows are tried out.
        hide: the submodule whose output is hidden; see `FeatureParty`.
    """

    def __init__(
        self, protect: Sequence[EmbeddingProtection], bottom: nn.Module, features: Sequence[Tensor], hide: str | None
    ) -> None:
        self.protect = _checked(protect)
        self.hide = hide
        self._bottom = bottom
        self._hidden = _submodule(bottom, hide)
        self.regularizers = self._bound(features) if self.protect else ()
        self._own = [one for one in self.regularizers if one is not None]

    @property
    def penalties(self) -> bool:
        """Whether a protection adds a loss."""
        return bool(self._own)

    @property
    def modules(self) -> list[nn.Module]:
        """The bottom and all regularizers: what changes at every step."""
        return [self._bottom, *self._own]

    @contextmanager
    def looking(self) -> Iterator[list[Tensor]]:
        """Take note of what is hidden while the bottom runs."""
        hidden: list[Tensor] = []
        if not self._own:
            yield hidden
            return
        with self._caught() as seen:
            yield hidden
        hidden.append(_flat(seen[-1]))

    def opened(self, z: Tensor, noise: Noise | StepNoise | None, step: int, hidden: list[Tensor]) -> Opened:
        """What goes out in the place of z in a step of the training, which is open from now on."""
        source = self._source(z, noise, "embedding", step)
        *places, sent = self._passed(z, source, step)
        return Opened(sent, hidden, places, source)

    def protected(self, z: Tensor, noise: Noise | StepNoise | None, what: str = "", step: int = 0) -> Tensor:
        """What goes out in the place of z where nothing is learned; a step that is open stays as it is."""
        return self._passed(z, self._source(z, noise, what, step), step)[-1]

    def _passed(self, z: Tensor, source: NoiseSource, step: int) -> list[Tensor]:
        """The embedding as it is, and after each protection, in their order."""
        if self.protect and not finite(z):
            raise TensorError(f"step {step}: the embedding is not finite, nothing was sent: look at inputs and rates")
        passed = [z]
        for one in self.protect:
            passed.append(_kept(one, passed[-1], one.transform(passed[-1], source)))
        return passed

    def _source(self, z: Tensor, noise: Noise | StepNoise | None, what: str, step: int) -> NoiseSource:
        """This message's randomness.

        A keyed one is bound to the very embedding that it will hide, so that no two embeddings ever go out under the
        same noise, whatever else has changed in between.
        """
        if noise is None or not self.protect:
            return _NoNoise()
        if isinstance(noise, StepNoise):
            if not what:
                raise UsageError("this noise belongs to the steps of a training: pass noise=torch.Generator() to embed")
            return noise.at(step, what.encode(), Message(step, what, z, b"").fingerprint)
        return noise_source(noise)

    def hidden(self, features: Iterable[Tensor]) -> Tensor:
        """What is hidden of these rows, the bottom in evaluation mode.  (rows, inputs)"""
        with evaluating(self._bottom), self._caught() as seen:
            self._bottom(*features)
        return _flat(seen[-1] if seen else ())

    def weigh(self, opened: Opened) -> None:
        """The losses of an open step, once; nothing is learned from them before `backward`."""
        if opened.losses:
            return
        places = zip(self.regularizers, opened.places, strict=True)
        losses = [one(opened.hidden[0], z, opened.noise) for one, z in places if one is not None]
        for one, loss in zip(self._own, losses, strict=True):
            if loss.ndim or not finite(loss):
                raise TensorError(
                    f"the loss of {type(one).__name__} is {loss.tolist()}, the model was not changed: it must be one "
                    "finite number; look at inputs, learning rates and its weight"
                )
        opened.losses = losses

    def backward(self, opened: Opened, gradient: Tensor) -> dict[str, Tensor]:
        """Both ways of learning at once: the gradient that came back, and the losses; their sum where there are any."""
        self.weigh(opened)
        losses = opened.losses
        for one in self._own:
            one.zero_grad()
        torch.autograd.backward([opened.sent, *losses], [gradient, *(torch.ones_like(loss) for loss in losses)])
        return {"penalty": torch.stack([loss.detach() for loss in losses]).sum()} if losses else {}

    def step(self) -> None:
        """Let the regularizers learn."""
        for one in self._own:
            if one.optimizer is not None:
                one.optimizer.step()

    def steer(self, protect: Sequence[EmbeddingProtection]) -> None:
        """Take these protections from now on: the same ones in the same order, at other strengths."""
        if [one.name for one in protect] != [one.name for one in self.protect]:
            raise UsageError("a party is steered by the strength of its protections, not by others in their place")
        self.protect = _checked(protect)

    def state(self) -> list[dict[str, Any]]:
        """What the regularizers have learned, for a checkpoint."""
        return [
            {"module": one.state_dict(), "optimizer": {} if one.optimizer is None else one.optimizer.state_dict()}
            for one in self._own
        ]

    def restore(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Bring back what `state` gave."""
        for one, then in zip(self._own, state, strict=True):
            one.load_state_dict(then["module"])
            if one.optimizer is not None:
                one.optimizer.load_state_dict(then["optimizer"])

    @contextmanager
    def _caught(self) -> Iterator[list[Sequence[Tensor]]]:
        """What is hidden, each time the bottom runs; afterwards the model keeps no hook of ours."""
        seen: list[Sequence[Tensor]] = []

        def catch(hidden: Sequence[Tensor]) -> None:  # copies: the next layer may work in place
            seen.append([part.detach().clone() if isinstance(part, Tensor) else part for part in hidden])

        if self._hidden is None:
            hook = self._bottom.register_forward_pre_hook(lambda module, inputs: catch(inputs))
        else:
            hook = self._hidden.register_forward_hook(lambda module, inputs, output: catch((output,)))
        try:
            yield seen
        finally:
            hook.remove()

    def _bound(self, features: Sequence[Tensor]) -> tuple[Regularizer | None, ...]:
        """The regularizers, made for rows like the first two."""
        with evaluating(self._bottom), self._caught() as seen:
            z = self._bottom(*(feature[:2].clone() for feature in features))  # the bottom may work in place
        problem: UsageError | None = None
        try:
            x = _flat(seen[-1] if seen else ())
        except UsageError as error:  # no matter where nothing but the embedding itself is changed
            x, problem = z.new_zeros(len(z), 1), error
        made: list[Regularizer | None] = []
        for one in self.protect:
            made.append(one.regularizer(x, z, [other for other in made if other is not None]))
        if problem is not None and any(one is not None for one in made):
            raise problem
        return tuple(made)


class _NoNoise:
    """Stands for randomness that nobody gave; protections that need none never ask."""

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        raise UsageError(
            "a protection of the embedding needs noise and there is no source: pass noise=torch.Generator(), or train "
            "between two folders"
        )

    uniform = normal


def _checked(protect: Sequence[EmbeddingProtection]) -> tuple[EmbeddingProtection, ...]:
    if isinstance(protect, EmbeddingProtection):
        raise UsageError(f"protect is a single protection: pass a list, as protect=[{protect!r}]")
    for one in protect:
        if isinstance(one, type) or not isinstance(one, EmbeddingProtection):
            raise UsageError(f"protect holds {one!r}, no embedding protection: pass what gaussian(snr=4.0) makes")
    return tuple(protect)


def _submodule(bottom: nn.Module, hide: str | None) -> nn.Module | None:
    """Where what is hidden comes out; None where it is what the bottom takes."""
    if hide is None:
        inputs: object = getattr(bottom, "inputs", None)
        return inputs if isinstance(inputs, nn.Module) else None
    known: dict[str, nn.Module] = {name: layer for name, layer in bottom.named_modules() if name}
    if hide not in known:
        raise UsageError(f"hide = {hide!r} is no layer of the bottom model; it has: {', '.join(known)}")
    return known[hide]


def _flat(hidden: Sequence[Tensor]) -> Tensor:
    """What is hidden as one flat row for each example, cut off from the graph.  (batch, inputs)"""
    if not hidden or any(not isinstance(part, Tensor) or not part.is_floating_point() for part in hidden):
        raise UsageError(
            "what is to be hidden is not all numbers (codes of categories have no distances): name the layer that "
            "embeds them, as FeatureParty(hide='inputs'), or as an attribute `inputs` of the bottom model"
        )
    return torch.cat([part.detach().flatten(1) for part in hidden], dim=1)


def _kept(one: EmbeddingProtection, z: Tensor, changed: Tensor) -> Tensor:
    """What a protection made, if it may be sent."""
    if changed.shape != z.shape or changed.dtype != z.dtype:
        raise TensorError(
            f"the protection {one.name} made {tuple(changed.shape)} of {changed.dtype} from an embedding "
            f"{tuple(z.shape)} of {z.dtype}; nothing was sent: a protection keeps shape and dtype"
        )
    if not finite(changed):
        raise TensorError(f"what the protection {one.name} made is not finite, nothing was sent: lower its strength")
    return changed
