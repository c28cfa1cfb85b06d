"""A training between two with float16 on the wire: the model of one process, and each side takes what is agreed."""

import pytest
import torch

from tacit.contracts import Message
from tacit.cut.simulate import simulate
from tacit.errors import ProtocolError, RefusedError
from tacit.protect.gradient.none import none
from tacit.wire.exactly_once import AskingChannel
from tests.plain_network import mlp


def same(one, two):
    return all(torch.equal(one[name][key], two[name][key]) for name in one for key in one[name])


def test_between_two_the_model_is_that_of_one_process(parties, tmp_path):
    """Through journals, and over links of bytes."""
    world = parties.World(tmp_path, protect=none(), float16=True, test_share=0.0)
    trained = parties.weights(parties.train(world))
    bottom, _ = mlp(5, widths=(8, 6), cut=2, generator=torch.Generator().manual_seed(0))
    top = torch.nn.Linear(6, 1)
    torch.nn.init.normal_(top.weight, generator=torch.Generator().manual_seed(99))
    torch.nn.init.zeros_(top.bias)
    alone = simulate(
        bottom=bottom, top=top, features=world.x["one"], labels=world.y, protect=none(), epochs=2,
        batch_size=parties.BATCH, seed=world.plan.seed, float16=True,
        optimizer=lambda module: torch.optim.Adam(module.parameters(), lr=0.02),
    )  # fmt: skip
    assert same({"one": alone.bottom.state_dict(), "label": alone.top.state_dict()}, trained)


@pytest.mark.parametrize("float16", [False, True])
def test_a_feature_party_that_sends_the_other_dtype_is_refused(parties, tmp_path, float16):
    world = parties.World(tmp_path, float16=float16)
    other = parties.World(tmp_path, float16=not float16)
    other.hub, world.feature, accept = world.hub, other.feature, world.hub.accept

    def accepted(timeout):
        link = accept(timeout)
        if link is not None:
            link.limits = world.limits  # each side has its own, as in two processes
        return link

    world.hub.accept = accepted
    with pytest.raises(RefusedError, match=r"came, float\d\d \(16, 6\) is agreed"):
        parties.train(world)
    assert not world.answers


class Misread(AskingChannel):
    """Gets answers whose power of two was changed on their way."""

    def recv(self, kind, step):
        inner = self.line.recv

        def changed(*arguments):
            message = inner(*arguments)
            if message is not None and message.kind == "gradient" and message.step == 2:
                payload = message.payload.clone()
                payload[-1] = -40.0
                message = Message(message.step, message.kind, payload, message.rows)
            return message

        self.line.recv = changed
        try:
            return super().recv(kind, step)
        finally:
            self.line.recv = inner


def test_an_answer_that_is_too_large_is_refused_before_it_is_written_down(parties, tmp_path):
    world = parties.World(tmp_path, float16=True, protect=none())
    world.asking = Misread
    with pytest.raises((ProtocolError, RefusedError), match=r"gradient of step 2: it holds numbers beyond 1e\+06"):
        parties.train(world)
