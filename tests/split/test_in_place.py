"""What a model does in place stays in the model: messages are on record as they were said."""

from types import SimpleNamespace

import torch
from torch import nn

from tacit.contracts import Message
from tacit.split.feature_party import FeatureParty
from tacit.split.simulate import pair

BATCH, WIDTH = 6, 4


class Clipped(nn.Linear):
    """A bottom that cuts its gradient off where it comes in."""

    def forward(self, x):
        z = super().forward(x)
        z.register_hook(lambda gradient: gradient.clamp_(-0.5, 0.5))
        return z


def test_a_bottom_that_changes_its_gradient_in_place_leaves_the_message_that_brought_it():
    """The journal writes it down while the bottom learns: a changed one would be on record as what was said."""
    bottom, said = Clipped(3, WIDTH), torch.ones(BATCH, WIDTH)
    features = torch.randn(20, 3, generator=torch.Generator().manual_seed(2))
    party = FeatureParty(bottom=bottom, features=features, optimizer=torch.optim.SGD(bottom.parameters(), lr=0.1))
    answer = Message(0, "gradient", said.clone(), b"")
    party.send(torch.arange(BATCH), pair()[0])
    figures = party.finish(SimpleNamespace(recv=lambda kind, step: answer))
    assert torch.equal(answer.payload, said)
    assert torch.equal(figures["gradient"], said), "as received"
    assert torch.equal(party.bottom.bias.grad, torch.full((WIDTH,), 0.5 * BATCH)), "what was clipped is learnt"
