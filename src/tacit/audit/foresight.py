"""What is about to be sent: a party knows its own clean gradients, so it can try before it sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from tacit.audit.attacks import attack, chosen
from tacit.audit.gate import Figure
from tacit.audit.run import Finding, attack_all
from tacit.audit.standard import STEERING, joined
from tacit.contracts import Attack, Protection, View

QUICK = chosen(lambda known: known.steers)
"""The attacks that decide whether a run goes on: the strongest that take less than a second on some batches."""


@dataclass(frozen=True)
class Sent:
    """Some batches of a training as the label party knows them."""

    view: View  # what the feature party saw
    clean: Tensor  # the gradients before they were protected, in the shape of the view's
    embedding: Tensor  # that they belong to, likewise

    def under(self, protect: Protection, state: Any, labels: Tensor, noise: torch.Generator) -> Sent:
        """The same batches as this protection would send them, one after the other from this state on."""
        sent = []
        for rows, clean, z in zip(self.view.rows, self.clean, self.embedding, strict=True):
            done = protect.update(clean, labels[rows], state, noise, z)
            sent.append(done.value)
            state = done.state
        return replace(self, view=View.of(torch.stack(sent), rows=self.view.rows, embedding=self.embedding))

    def again(
        self, protect: Protection, state: Any, labels: Tensor, noise: torch.Generator, *, times: int, batch: int
    ) -> Sent:
        """These visits of some examples and so many more, under this protection, from the last clean gradients on.

        That gradients do not change any more is the worst case: nothing but noise is new at a visit. Rows are protected
        in batches of this size.
        """
        rows, last, z = self.view.rows[-1], self.clean[-1], self.embedding[-1]
        visits = []
        for _ in range(times):
            parts = []
            for some in torch.arange(len(rows), device=rows.device).split(batch):
                done = protect.update(last[some], labels[rows[some]], state, noise, z[some])
                state = done.state
                parts.append(done.value)
            visits.append(torch.cat(parts))
        gradient = torch.cat([self.view.gradient, torch.stack(visits)]) if visits else self.view.gradient
        embedding = torch.cat([self.embedding, z.expand(times, -1, -1)])
        return Sent(
            View.of(gradient, rows=rows.expand(len(gradient), -1), embedding=embedding),
            torch.cat([self.clean, last.expand(times, -1, -1)]),
            embedding,
        )


def figures(findings: list[Finding], on: Literal["batches", "visits"]) -> list[Figure]:
    """Findings in the measure of a limit: what an attacker had without any message does not count."""
    return [
        # what is no number comes first in max(), which then keeps it
        Figure(one.attack, on, 0.5 + max(one.excess, 0.0), one.surely, max(one.held, 0.5 + one.excess))
        for one in findings
    ]


def on_batches(sent: Sent, labels: Tensor, *, seed: int, attacks: tuple[str, ...] = QUICK) -> list[Figure]:
    """The quick attacks on single messages; one that can't run here is left out, as those on batches of one class."""
    return figures(_attacked(sent, labels, [attack(name) for name in attacks], seed), "batches")


def on_visits(sent: Sent, labels: Tensor, *, seed: int) -> list[Figure]:
    """The attacks on all visits of an example together, be it one so far."""
    return figures(_attacked(sent, labels, joined(STEERING), seed), "visits")


def _attacked(sent: Sent, labels: Tensor, attacks: Sequence[Attack], seed: int) -> list[Finding]:
    """What each attack found that these labels let run."""
    noise = torch.Generator().manual_seed(seed)
    return attack_all(sent.view, labels, attacks, noise=noise, clean=sent.clean, skipped={})
