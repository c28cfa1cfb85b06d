"""What every channel must do, whatever it is made of."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tacit.contracts import Message
from tacit.errors import LinkError, ProtocolError
from tacit.wire.channel import LinkChannel
from tacit.wire.memory import links

SECONDS = 10
DIGEST = bytes(range(16))


def message(step, kind="embedding", shape=(2, 3)):
    generator = torch.Generator().manual_seed(step)
    return Message(step, kind, torch.randn(shape, generator=generator), DIGEST)


def assert_same(found, sent):
    assert (found.step, found.kind, found.rows) == (sent.step, sent.kind, sent.rows)
    assert found.payload.dtype is sent.payload.dtype
    assert found.payload.shape == sent.payload.shape
    assert torch.equal(found.payload, sent.payload)


def test_messages_arrive_in_order_at_the_other_end(ends):
    sent = [message(step) for step in range(20)]
    for one in sent:
        ends.left.send(one)
    ends.right.send(message(0, "gradient"))
    for one in sent:
        assert_same(ends.right.recv("embedding", one.step), one)
    assert_same(ends.left.recv("gradient", 0), message(0, "gradient"))


@pytest.mark.parametrize(
    "sent",
    [
        Message(0, "hello", torch.tensor([123, 125], dtype=torch.uint8), b""),
        Message(2**64 - 1, "matches", torch.tensor([-(2**63), 0, 2**63 - 1]), DIGEST),
        Message(1, "figures", torch.tensor(0.1, dtype=torch.float64), DIGEST),
        Message(1, "evaluation", torch.ones(2, 1, 3, 2, dtype=torch.bfloat16) / 3, DIGEST),
        Message(1, "embedding", torch.zeros(0, 128), DIGEST),
        Message(1, "embedding", torch.randn(6, 8, generator=torch.Generator().manual_seed(1)).T[::2, 1:], DIGEST),
        Message(1, "embedding", torch.tensor([[-0.0, 1e-45, 3.4e38]]), bytes(16)),
    ],
    ids=lambda sent: f"{sent.kind}-{tuple(sent.payload.shape)}",
)
def test_every_bit_is_kept(ends, sent):
    ends.left.send(sent)
    found = ends.right.recv(sent.kind, sent.step)
    assert_same(found, sent)
    if sent.payload.is_floating_point():
        assert torch.equal(torch.signbit(found.payload), torch.signbit(sent.payload))


def test_a_tensor_with_a_gradient_arrives_without_one(ends):
    if not ends.copies:
        pytest.skip("what is handed over as it is must be detached by the sender")
    ends.left.send(Message(0, "embedding", torch.ones(2, 3, requires_grad=True), b""))
    assert not ends.right.recv("embedding", 0).payload.requires_grad


def test_nothing_comes_back_to_the_sender(ends):
    ends.left.send(message(0))
    ends.right.send(message(1, "gradient"))
    assert_same(ends.left.recv("gradient", 1), message(1, "gradient"))
    assert_same(ends.right.recv("embedding", 0), message(0))


@pytest.mark.parametrize(("kind", "step"), [("gradient", 4), ("embedding", 3), ("embedding", 5)])
def test_another_kind_or_step_is_refused_and_stays_where_it_is(ends, kind, step):
    ends.left.send(message(4))
    ends.left.send(message(5))
    for _ in range(2):
        with pytest.raises(
            ProtocolError, match=f"expected the {kind} of step {step}, got the embedding of step 4: .*same"
        ):
            ends.right.recv(kind, step)
    assert_same(ends.right.recv("embedding", 4), message(4))
    assert_same(ends.right.recv("embedding", 5), message(5))


def test_a_message_of_many_frames(ends):
    sent = message(7, shape=(40_000, 128))  # 20 MB, five frames
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(ends.left.send, sent)
        if ends.close is None:
            sending.result(SECONDS)
        assert_same(ends.right.recv("embedding", 7), sent)
        sending.result(SECONDS)


def test_many_small_messages_both_ways_at_once(ends):
    count = 300

    def talk(channel, sends, receives):
        for step in range(count):
            channel.send(message(step, sends))
            if ends.close is not None:  # where nobody can wait, all are sent first and taken below
                assert_same(channel.recv(receives, step), message(step, receives))

    sides = [(ends.left, "embedding", "gradient"), (ends.right, "gradient", "embedding")]
    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(talk, *side) for side in sides]:
            job.result(SECONDS)
    if ends.close is None:
        for channel, _, receives in sides:
            for step in range(count):
                assert_same(channel.recv(receives, step), message(step, receives))


def test_a_later_change_of_the_senders_tensor_does_not_arrive(ends):
    if not ends.copies:
        pytest.skip("what is sent belongs to the other side")
    sent = message(0, shape=(1000, 128))
    before = sent.payload.clone()
    ends.left.send(sent)
    sent.payload.zero_()
    found = ends.right.recv("embedding", 0).payload
    assert torch.equal(found, before)
    found.zero_()


def test_what_was_sent_before_the_end_arrives_and_then_it_is_over(ends):
    if ends.close is None:
        pytest.skip("there is nothing to close")
    sent = [message(step, shape=(3000, 128)) for step in range(3)]
    for one in sent:
        ends.left.send(one)
    closing = threading.Thread(target=ends.close)
    closing.start()
    for one in sent:
        assert_same(ends.right.recv("embedding", one.step), one)
    with pytest.raises(LinkError, match="closed"):
        ends.right.recv("embedding", 3)
    closing.join(SECONDS)
    assert not closing.is_alive()
    with pytest.raises(LinkError, match="closed"):
        ends.left.recv("gradient", 0)
    with pytest.raises(LinkError, match="closed"):
        ends.left.send(message(0))
    with pytest.raises(LinkError, match="closed"):
        ends.right.send(message(0, "gradient"))
    ends.close()  # a second time is nothing


def test_a_receiver_that_waits_learns_of_the_end(ends):
    if ends.close is None:
        pytest.skip("there is nothing to close")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ends.right.recv, "embedding", 0)
        ends.close()
        with pytest.raises(LinkError, match="closed"):
            waiting.result(SECONDS)


def test_a_link_channel_does_not_wait_longer_than_it_should():
    left, _right = links(names=("airport", "airline"))
    with pytest.raises(LinkError, match=r"step 3: no gradient came from airline in 0.01 s: see whether it still runs"):
        LinkChannel(left, timeout=0.01).recv("gradient", 3)


EXCHANGE = """
import sys, torch
from tacit.contracts import Message
from tacit.wire import certificates, network
from tacit.wire.codec import CONTROL, AtMost, Limit, control, read_control

limits = {"hello": CONTROL, "embedding": Limit(torch.float32, (AtMost(50_000), 128))}
airline, airport = certificates.create("airline"), certificates.create("airport")

def exchange():
    server = network.listen("127.0.0.1:0", airline, {"airport": airport.cert_pem}, limits)
    left = network.connect(server.address, airport, "airline", airline.cert_pem, limits)
    right = server.accept(10)
    left.send(control("hello", 0, {"name": "x"}))
    assert read_control(right.recv(10)) == {"name": "x"}
    right.send(Message(1, "embedding", torch.randn(20_000, 128), b""))
    assert left.recv(10).payload.shape == (20_000, 128)
    left.close()
    server.close()

exchange()  # imports what is imported late
seen = []
sys.addaudithook(lambda event, _: seen.append(event))
exchange()
if "--canary" in sys.argv:
    import pickle
    pickle.loads(pickle.dumps(torch.device("cpu")))
print(sorted({event for event in seen if event.startswith(("pickle.", "marshal.", "exec", "compile"))}))
"""


@pytest.mark.parametrize(("options", "found"), [((), "[]"), (("--canary",), "['pickle.find_class']")])
def test_nothing_is_unpickled_or_executed_on_the_way(options, found):
    done = subprocess.run(
        [sys.executable, "-c", EXCHANGE, *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.returncode) == (found, 0), done.stderr
