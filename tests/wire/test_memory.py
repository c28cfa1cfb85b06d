"""The channel inside one process: in order, and only what is expected."""

import pytest
import torch

from tacit.contracts import Message
from tacit.errors import ProtocolError
from tacit.split.simulate import pair


def message(step, kind="embedding"):
    return Message(step, kind, torch.full((2, 3), float(step)), b"rows")


def test_messages_arrive_in_order_at_the_other_end():
    left, right = pair()
    sent = [message(step) for step in range(3)]
    for one in sent:
        left.send(one)
    right.send(message(0, "gradient"))
    assert [right.recv("embedding", step) for step in range(3)] == sent
    assert left.recv("gradient", 0).kind == "gradient"


def test_nothing_comes_back_to_the_sender():
    left, right = pair()
    left.send(message(0))
    with pytest.raises(ProtocolError, match=r"step 0: no embedding was sent yet; .* the sender must act first"):
        left.recv("embedding", 0)
    assert right.recv("embedding", 0).step == 0


def test_an_empty_channel_refuses():
    left, right = pair()
    left.send(message(0))
    right.recv("embedding", 0)
    with pytest.raises(ProtocolError, match="step 1: no embedding was sent yet"):
        right.recv("embedding", 1)


@pytest.mark.parametrize(("kind", "step"), [("gradient", 4), ("embedding", 3), ("embedding", 5), ("loss", 4)])
def test_another_kind_or_step_is_refused_and_stays_where_it_is(kind, step):
    left, right = pair()
    left.send(message(4))
    with pytest.raises(ProtocolError, match=f"expected the {kind} of step {step}, got the embedding of step 4: .*same"):
        right.recv(kind, step)
    assert right.recv("embedding", 4).step == 4
