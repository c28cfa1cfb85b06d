"""The page on who is kept out: every test that it names is there, and what no other test holds is held here."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import tacit
from tacit.align.batches import digest
from tacit.contracts import Message
from tacit.split.simulate import pair

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "explain-threat-model.md").read_text()
NAMED = sorted(set(re.findall(r"tests/[\w/]+\.py::test_\w+", PAGE)))


@pytest.mark.parametrize("named", NAMED)
def test_every_test_that_the_page_names_is_there(named):
    path, _, test = named.partition("::")
    assert re.search(rf"^def {test}\(", (ROOT / path).read_text(), re.MULTILINE), named


def test_every_promise_names_a_test():
    promised = PAGE.partition("## What is promised")[2].partition("## What is not protected")[0]
    lines = [line for line in promised.splitlines() if re.match(r"\| (?!\*\*|promised )", line)]
    assert len(lines) >= 20
    assert all("::test_" in line for line in lines)


class Spy:
    """Adds noise, and remembers what it was asked."""

    def __init__(self):
        self.inner = tacit.iso(t=4.0)
        self.asked = []

    def init(self):
        return self.inner.init()

    def update(self, grad, labels, state, noise, embedding=None):
        self.asked.append(grad)
        return self.inner.update(grad, labels, state, noise, embedding)


class Top(nn.Module):
    """Takes the embeddings of two feature parties."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 1)

    def forward(self, one, other):
        return self.linear(torch.cat([one, other], dim=1)).squeeze(1)


def test_noise_for_several_feature_parties_is_drawn_once(seeded):
    torch.manual_seed(0)
    top, spy, rows = Top(), Spy(), torch.arange(8)
    party = tacit.LabelParty(
        top=top, labels=(rows % 2).float(), optimizer=torch.optim.SGD(top.parameters(), lr=0.1), protect=spy,
        noise=seeded(1),
    )  # fmt: skip
    ends = [pair(), pair()]
    for (ours, _), width in zip(ends, (3, 2), strict=True):
        ours.send(Message(0, "embedding", torch.randn(8, width, generator=seeded(width)), digest(rows)))
    seen = party.step(rows, [theirs for _, theirs in ends])
    got = [ours.recv("gradient", 0).payload for ours, _ in ends]
    assert [asked.shape for asked in spy.asked] == [(8, 5)]  # once, for the gradients of both cuts side by side
    assert torch.equal(torch.cat(got, dim=1), seen["sent"])
    assert not torch.equal(seen["sent"], seen["clean"])
