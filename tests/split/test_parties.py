"""One step between two parties: what crosses the wire, what is refused, and that a refusal changes nothing."""

import copy
from dataclasses import fields

import pytest
import torch
from torch import Tensor, nn

from tacit.align.batches import digest
from tacit.contracts import Message, noise_source
from tacit.errors import LabelsError, ProtocolError, TensorError, UsageError
from tacit.split import simulate as simulate_module
from tacit.split.feature_party import FeatureParty
from tacit.split.label_party import LabelParty
from tacit.split.models import conv
from tacit.split.protect.gradient.iso import iso
from tacit.split.protect.gradient.marvell import marvell
from tacit.split.protect.gradient.none import none
from tacit.split.simulate import pair, simulate
from tests.plain_network import mlp

COUNT, BATCH, WIDTH = 20, 6, 4
ROWS = torch.tensor([3, 19, 0, 7, 8, 2])


class TrappedLabels(Tensor):
    """Labels that nobody may touch once the trap is set."""

    trap = False

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if cls.trap:
            raise AssertionError("a label was touched")
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.fixture
def trapped(monkeypatch):
    labels = (torch.arange(COUNT) % 3 == 0).float().as_subclass(TrappedLabels)

    def set_trap():
        monkeypatch.setattr(TrappedLabels, "trap", True)

    return labels, set_trap


class NoProtection:
    """Stands where a protection would, and must not be asked."""

    def init(self):
        return None

    def update(self, *args):
        raise AssertionError("the protection was asked")


def optimizer(module):
    return torch.optim.Adam(module.parameters(), lr=0.01)


def models():
    return mlp(3, widths=(WIDTH, 5), cut=1, generator=torch.Generator().manual_seed(1))


def feature_party(**options):
    bottom = options.pop("bottom", None) or models()[0]
    x = torch.randn(COUNT, 3, generator=torch.Generator().manual_seed(2))
    return FeatureParty(**{"bottom": bottom, "features": x, "optimizer": optimizer(bottom), **options})


def label_party(**options):
    top = options.pop("top", None) or models()[1]
    labels = (torch.arange(COUNT) % 3 == 0).float()
    return LabelParty(
        **{"top": top, "labels": labels, "optimizer": optimizer(top), "protect": none(), "noise": torch.Generator(),
           **options}
    )  # fmt: skip


def exchange(features, label, rows=ROWS):
    """One whole step of both parties."""
    left, right = pair()
    features.send(rows, left)
    label.step(rows, right)
    features.finish(left)


def snapshot(party):
    model = party.bottom if isinstance(party, FeatureParty) else party.top
    return copy.deepcopy((model.state_dict(), party.optimizer.state_dict()["state"], party.steps))


def assert_unchanged(party, before):
    weights, state, steps = snapshot(party)
    assert steps == before[2]
    assert state.keys() == before[1].keys()
    assert all(torch.equal(weights[name], before[0][name]) for name in weights)
    assert all(torch.equal(state[key][name], before[1][key][name]) for key in state for name in state[key])


def test_the_snapshot_sees_a_step():
    features, label = feature_party(), label_party()
    exchange(features, label)
    before = snapshot(features), snapshot(label)
    exchange(features, label)
    for party, old in zip((features, label), before, strict=True):
        with pytest.raises(AssertionError):
            assert_unchanged(party, old)


# --- what crosses the wire -------------------------------------------------------------------------------------------


class Spy:
    """A pair of ends that write down every message that is sent through them."""

    def __init__(self):
        self.log = []
        self.left, self.right = (_SpyEnd(end, name, self.log) for end, name in zip(pair(), "lr", strict=True))


class _SpyEnd:
    def __init__(self, end, name, log):
        self.end, self.name, self.log = end, name, log

    def send(self, message):
        self.log.append((self.name, message))
        self.end.send(message)

    def recv(self, kind, step):
        return self.end.recv(kind, step)


@pytest.mark.parametrize("protect", [none(), marvell(scale=4.0)])
def test_nothing_but_embeddings_and_gradients_crosses(monkeypatch, protect):
    spy = Spy()
    monkeypatch.setattr(simulate_module, "pair", lambda: (spy.left, spy.right))
    bottom, top = conv(1, 4, 1, blocks=2, width=3, hidden=4, generator=torch.Generator().manual_seed(1))
    images = torch.randn(COUNT, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    labels = (torch.arange(COUNT) % 3 == 0).float()
    simulate(bottom=bottom, top=top, features=images, labels=labels, protect=protect, batch_size=BATCH, epochs=2)
    assert {field.name for field in fields(Message)} == {"step", "kind", "payload", "rows"}
    steps = 2 * (COUNT // BATCH)
    assert [(end, m.step, m.kind) for end, m in spy.log] == [
        sent for step in range(steps) for sent in (("l", step, "embedding"), ("r", step, "gradient"))
    ]
    for (_, there), (_, back) in zip(spy.log[::2], spy.log[1::2], strict=True):
        assert type(there) is type(back) is Message
        assert there.payload.shape == back.payload.shape == (BATCH, 3, 2, 2)
        assert not there.payload.requires_grad
        assert not back.payload.requires_grad
        assert back.rows == there.rows  # the digest goes back as it came, so it can carry nothing
        assert len(there.rows) == 16


def test_labels_reach_the_wire_through_the_protection_alone():
    """With a protection that sends zeros, the wire is the same whatever the labels are."""

    class Zeros:
        def init(self):
            return None

        def update(self, grad, labels, state, noise, embedding=None):
            return none()(torch.zeros_like(grad), labels, noise)

    sent = []
    for labels in (torch.zeros(COUNT), torch.ones(COUNT)):
        spy = Spy()
        features, label = feature_party(), label_party(labels=labels, protect=Zeros())
        for _ in range(2):
            features.send(ROWS, spy.left)
            label.step(ROWS, spy.right)
            features.finish(spy.left)
        sent.append([(end, m.step, m.kind, m.payload.tolist(), m.rows) for end, m in spy.log])
    assert sent[0] == sent[1]


# --- what the label party refuses ------------------------------------------------------------------------------------


def bad(**changes):
    payload = torch.ones(BATCH, WIDTH)
    for place, value in changes.pop("at", {}).items():
        payload[place] = value
    return Message(**{"step": 1, "kind": "embedding", "payload": payload, "rows": digest(ROWS), **changes})


BAD_EMBEDDINGS = {
    "other_rows": (bad(rows=digest(ROWS + 1)), ProtocolError, "step 1: .*other rows: compare data, seed and batch"),
    "other_order": (bad(rows=digest(ROWS.flip(0))), ProtocolError, "step 1: .*other rows"),
    "nan": (bad(at={(2, 3): float("nan")}), TensorError, "step 1: the embedding is not finite; no label was touched"),
    "inf": (bad(at={(5, 0): float("inf")}), TensorError, "step 1: the embedding is not finite; no label was touched"),
    "minus_inf": (bad(at={(0, 0): -float("inf")}), TensorError, "not finite; no label was touched"),
    "all_inf": (bad(at={...: float("inf")}), TensorError, "not finite; no label was touched"),
    "too_few_rows": (bad(payload=torch.ones(BATCH - 1, WIDTH)), TensorError, r"\(5, 4\) of torch.float32 came for 6"),
    "too_many_rows": (bad(payload=torch.ones(BATCH + 1, WIDTH)), TensorError, r"\(7, 4\) .*came for 6 rows; no label"),
    "no_cut": (bad(payload=torch.ones(BATCH)), TensorError, r"\(6,\).* must give \(rows, \*cut\)"),
    "a_number": (bad(payload=torch.tensor(1.0)), TensorError, r"\(\).* must give \(rows, \*cut\)"),
    "integers": (bad(payload=torch.ones(BATCH, WIDTH, dtype=torch.int64)), TensorError, "int64.*in a floating dtype"),
    "step": (bad(step=2), ProtocolError, "expected the embedding of step 1, got the embedding of step 2"),
    "kind": (bad(kind="gradient"), ProtocolError, "expected the embedding of step 1, got the gradient of step 1"),
}


@pytest.mark.parametrize("case", BAD_EMBEDDINGS)
def test_a_bad_embedding_is_refused_before_any_label_is_touched(case, trapped):
    message, error, says = BAD_EMBEDDINGS[case]
    labels, set_trap = trapped
    party = label_party(labels=labels)
    exchange(feature_party(), party)  # so that the optimizer has a state to lose
    party.protect = NoProtection()
    before = snapshot(party)
    left, right = pair()
    left.send(message)
    set_trap()
    with pytest.raises(error, match=says):
        party.step(ROWS, right)
    assert_unchanged(party, before)
    assert not left.incoming, "something was answered"


def test_the_trap_on_the_labels_works(trapped):
    labels, set_trap = trapped
    party = label_party(labels=labels)
    set_trap()
    with pytest.raises(AssertionError, match="a label was touched"):
        exchange(feature_party(), party)


def test_the_embedding_may_span_all_that_its_dtype_holds():
    party = label_party(top=nn.Sequential(nn.Hardtanh(), nn.Linear(WIDTH, 1)))
    left, right = pair()
    left.send(bad(step=0, at={(0, 0): 3e38, (1, 1): -3e38}))
    assert torch.isfinite(party.step(ROWS, right)["loss"])


def test_a_top_that_ignores_the_embedding():
    class Blind(nn.Linear):
        def forward(self, z):
            return super().forward(torch.ones_like(z))

    with pytest.raises(UsageError, match="does not use the embedding"):
        exchange(feature_party(), label_party(top=Blind(WIDTH, 1)))


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"features": torch.ones(COUNT - 1, 2)}, UsageError, "own have 19 rows, not 20 each: align the tables"),
        ({"features": [torch.ones(COUNT, 2), torch.ones(3)]}, UsageError, "own have 20, 3 rows, not 20 each"),
        ({"features": [None]}, UsageError, r"own\[0\] is no tensor with rows, but None"),
        ({"targets": torch.ones(COUNT - 1)}, LabelsError, r"targets have shape \(19,\) .*pass one for each"),
        ({"targets": torch.full((COUNT,), torch.nan)}, LabelsError, "target nan of row 0 is not finite"),
    ],
)
def test_a_label_party_that_can_not_be(options, error, says):
    with pytest.raises(error, match=says):
        label_party(**options)


# --- what the feature party refuses ----------------------------------------------------------------------------------

BAD_GRADIENTS = {
    "nan": (torch.full((BATCH, WIDTH), torch.nan), "step 1: the gradient is not finite; .*the model was not changed"),
    "inf": (
        torch.ones(BATCH, WIDTH).index_fill(0, torch.tensor(2), torch.inf),
        "not finite; .*the model was not changed",
    ),
    "rows": (torch.ones(BATCH - 1, WIDTH), r"step 1: a gradient \(5, 4\) of torch.float32 came for .*\(6, 4\)"),
    "one": (torch.ones(1), r"\(1,\) .*came for an embedding \(6, 4\)"),
    "width": (torch.ones(BATCH, WIDTH + 1), r"\(6, 5\).* came for .*\(6, 4\) .*; the model was not changed: compare"),
    "dtype": (torch.ones(BATCH, WIDTH, dtype=torch.float64), "of torch.float64 came for .* of torch.float32"),
}


@pytest.mark.parametrize("case", BAD_GRADIENTS)
def test_a_bad_gradient_is_refused_and_the_bottom_stays_as_it_is(case):
    payload, says = BAD_GRADIENTS[case]
    party = feature_party()
    exchange(party, label_party())
    before = snapshot(party)
    left, right = pair()
    party.send(ROWS, left)
    right.send(Message(1, "gradient", payload, b""))
    with pytest.raises(TensorError, match=says):
        party.finish(left)
    assert_unchanged(party, before)
    with pytest.raises(ProtocolError, match="no answer yet"):  # the step is still open: nothing is sent twice
        party.send(ROWS, left)


def test_send_and_finish_take_turns():
    party = feature_party()
    left, right = pair()
    with pytest.raises(ProtocolError, match=r"step 0: no embedding was sent yet; call send\(\) first"):
        party.finish(left)
    party.send(ROWS, left)
    with pytest.raises(ProtocolError, match=r"step 0: the last embedding has no answer yet; call finish\(\) first"):
        party.send(ROWS, left)
    with pytest.raises(ProtocolError, match="step 0: no gradient was sent yet"):
        party.finish(left)
    label_party().step(ROWS, right)
    party.finish(left)  # an early finish() did not lose the step
    assert party.steps == 1
    assert not right.incoming, "an embedding was sent twice"


def test_an_answer_to_another_step_is_refused():
    party = feature_party()
    left, right = pair()
    party.send(ROWS, left)
    right.send(Message(1, "gradient", torch.ones(BATCH, WIDTH), b""))
    with pytest.raises(ProtocolError, match="expected the gradient of step 0, got the gradient of step 1"):
        party.finish(left)


def test_step_is_send_and_finish():
    """For a channel that answers at once, as a network would."""
    label, (left, right) = label_party(), pair()

    class Answering:
        def send(self, message):
            left.send(message)
            label.step(ROWS, right)

        def recv(self, kind, step):
            return left.recv(kind, step)

    one, other = feature_party(), feature_party()
    figures = one.step(ROWS, Answering())
    exchange(other, label_party())
    assert set(figures) == {"embedding", "own_embedding", "gradient"}
    assert_unchanged(one, snapshot(other))


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return (x * self.weight).sum(1)


@pytest.mark.parametrize(
    ("bottom", "error", "says"),
    [
        (Sum(), TensorError, r"gives \(6,\) for 6 rows: \(rows, \*cut\) is needed"),
        (nn.Sequential(nn.Linear(3, 4), nn.Flatten(0), nn.Unflatten(0, (12, 2))), TensorError, r"\(12, 2\) for 6 rows"),
        (nn.Linear(3, 4).requires_grad_(False), UsageError, "no parameter that can be trained"),
    ],
)
def test_a_bottom_that_gives_no_embedding(bottom, error, says):
    left, right = pair()
    with pytest.raises(error, match=says):
        feature_party(bottom=bottom).send(ROWS, left)
    assert not right.incoming


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ((), "features hold no tensor: pass one or several"),
        ([torch.ones(4, 2), torch.ones(5, 2)], "features have 4, 5 rows, not the same number each: align"),
        ([torch.ones(4, 2), None], r"features\[1\] is no tensor with rows, but None"),
        (torch.tensor(1.0), r"features\[0\] is no tensor with rows"),
    ],
)
def test_features_that_do_not_fit_together(features, says):
    with pytest.raises(UsageError, match=says):
        feature_party(features=features)


class Remembered:
    """A source for each step that remembers what it was bound to."""

    def __init__(self):
        self.bound = []

    def at(self, step, *context):
        self.bound.append((step, *context))
        return noise_source(torch.Generator().manual_seed(0))


def test_keyed_noise_is_bound_to_the_request_and_to_the_gradient_that_it_hides():
    """The same request to other weights gives another gradient, and must not get the same noise."""
    bound = []
    for scale in (1.0, 1.0, 2.0):
        party = label_party(protect=iso(t=1.0), noise=(noise := Remembered()))
        with torch.no_grad():
            for weight in party.top.parameters():
                weight.mul_(scale)
        left, right = pair()
        feature_party().send(ROWS, left)
        party.step(ROWS, right)
        bound += noise.bound
    assert bound[0] == bound[1]
    assert bound[0][:-1] == bound[2][:-1]
    assert bound[0][-1] != bound[2][-1]


def test_where_no_noise_is_drawn_none_is_keyed():
    party, (left, right) = label_party(noise=(noise := Remembered())), pair()
    feature_party().send(ROWS, left)
    party.step(ROWS, right)
    assert noise.bound == []
