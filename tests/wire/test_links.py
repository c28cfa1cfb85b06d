"""What every link must do, whatever it is made of."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tacit.contracts import Message
from tacit.errors import LinkError

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
    left, right = ends
    sent = [message(step) for step in range(20)]
    for one in sent:
        left.send(one)
    right.send(message(0, "gradient"))
    for one in sent:
        assert_same(right.recv(SECONDS), one)
    assert_same(left.recv(SECONDS), message(0, "gradient"))


@pytest.mark.parametrize(
    "sent",
    [
        Message(0, "hello", torch.tensor([123, 125], dtype=torch.uint8), b""),
        Message(2**64 - 1, "matches", torch.tensor([0, 1, 255], dtype=torch.uint8), DIGEST),
        Message(1, "figures", torch.tensor(0.1, dtype=torch.float64), DIGEST),
        Message(1, "evaluation", torch.ones(2, 1, 3, 2, dtype=torch.float64) / 3, DIGEST),
        Message(1, "embedding", torch.zeros(0, 128), DIGEST),
        Message(1, "embedding", torch.randn(6, 8, generator=torch.Generator().manual_seed(1)).T[::2, 1:], DIGEST),
        Message(1, "embedding", torch.tensor([[-0.0, 1e-45, 3.4e38]]), bytes(16)),
    ],
    ids=lambda sent: f"{sent.kind}-{tuple(sent.payload.shape)}",
)
def test_every_bit_is_kept(ends, sent):
    left, right = ends
    left.send(sent)
    found = right.recv(SECONDS)
    assert_same(found, sent)
    if sent.payload.is_floating_point():
        assert torch.equal(torch.signbit(found.payload), torch.signbit(sent.payload))


def test_a_tensor_with_a_gradient_arrives_without_one(ends):
    left, right = ends
    left.send(Message(0, "embedding", torch.ones(2, 3, requires_grad=True), b""))
    assert not right.recv(SECONDS).payload.requires_grad


def test_nothing_comes_back_to_the_sender(ends):
    left, right = ends
    left.send(message(0))
    right.send(message(1, "gradient"))
    assert_same(left.recv(SECONDS), message(1, "gradient"))
    assert_same(right.recv(SECONDS), message(0))


def test_a_message_of_many_frames(ends):
    left, right = ends
    sent = message(7, shape=(40_000, 128))  # 20 MB, five frames
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(left.send, sent)
        assert_same(right.recv(SECONDS), sent)
        sending.result(SECONDS)


def test_many_small_messages_both_ways_at_once(ends):
    left, right = ends

    def talk(link, sends, receives):
        for step in range(300):
            link.send(message(step, sends))
            assert_same(link.recv(SECONDS), message(step, receives))

    with ThreadPoolExecutor(2) as pool:
        for job in [
            pool.submit(talk, left, "embedding", "gradient"),
            pool.submit(talk, right, "gradient", "embedding"),
        ]:
            job.result(SECONDS)


def test_a_later_change_of_the_senders_tensor_does_not_arrive(ends):
    left, right = ends
    sent = message(0, shape=(1000, 128))
    before = sent.payload.clone()
    left.send(sent)
    sent.payload.zero_()
    found = right.recv(SECONDS).payload
    assert torch.equal(found, before)
    found.zero_()


def test_what_was_sent_before_the_end_arrives_and_then_it_is_over(ends):
    left, right = ends
    sent = [message(step, shape=(3000, 128)) for step in range(3)]
    for one in sent:
        left.send(one)
    closing = threading.Thread(target=left.close)
    closing.start()
    for one in sent:
        assert_same(right.recv(SECONDS), one)
    with pytest.raises(LinkError, match="closed"):
        right.recv(SECONDS)
    closing.join(SECONDS)
    assert not closing.is_alive()
    with pytest.raises(LinkError, match="closed"):
        left.recv(SECONDS)
    with pytest.raises(LinkError, match="closed"):
        left.send(message(0))
    with pytest.raises(LinkError, match="closed"):
        right.send(message(0, "gradient"))
    left.close()  # a second time is nothing


def test_a_receiver_that_waits_learns_of_the_end(ends):
    left, right = ends
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(right.recv, SECONDS)
        left.close()
        with pytest.raises(LinkError, match="closed"):
            waiting.result(SECONDS)


def test_a_receiver_does_not_wait_longer_than_it_should(ends):
    assert ends[1].recv(0.01) is None


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
