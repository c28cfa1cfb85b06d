"""What stands between a party and what it sends, as a session calls it."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from tacit.align.batches import Task
from tacit.contracts import Protected


class LabelGuard(Protocol):
    """Stands between a label party and what it sends. Where it raises, nothing leaves and nothing has changed."""

    def before(self, task: Task, clean: Tensor, embedding: Tensor, /) -> None:
        """A gradient is about to be protected; another protection may be set here."""

    def leaving(self, task: Task, sent: Protected | None, /) -> None:
        """A protected gradient is about to leave or, where it is None, figures of an epoch."""


class FeatureGuard(Protocol):
    """The same for a feature party."""

    def before(self, task: Task, embedding: Tensor, /) -> None:
        """An embedding is about to be protected; other protections may be set here."""

    def leaving(self, task: Task, /) -> None:
        """Embeddings are about to leave."""


class Unguarded:
    """Nobody looks at what is sent, as in trials."""

    def before(self, *_: object) -> None:
        """Let it pass."""

    leaving = before
