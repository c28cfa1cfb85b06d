"""Float16 on the wire: what is rounded, what fits, and that both sides and every recording have what left."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tacit.align.batches import batches, digest
from tacit.contracts import Message
from tacit.cut.feature_party import FeatureParty
from tacit.cut.float16 import HIGHEST, rounded, scaled, unscaled, wrong_gradient
from tacit.cut.label_party import LabelParty, alike
from tacit.cut.session import LARGEST
from tacit.cut.simulate import pair, simulate
from tacit.errors import TensorError
from tacit.protect.embedding.gaussian import gaussian
from tacit.protect.gradient.matched import matched
from tacit.protect.gradient.none import none
from tacit.wire.record import Recorder
from tests.plain_network import mlp

ROWS, INPUTS, WIDTH, BATCH, SEED = 96, 5, 6, 16, 4
TINY = 2.0**-149  # the smallest float32

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
near_the_end = st.floats(65000, 66000, width=32) | st.floats(-66000, -65000, width=32)
subnormal = st.floats(-(2.0**-13), 2.0**-13, width=32)


# --- single messages -------------------------------------------------------------------------------------------------


@given(st.lists(near_the_end | subnormal | floats, min_size=1, max_size=8))
@example([HIGHEST, -HIGHEST, 0.0, -0.0])
@example([math.nextafter(HIGHEST, math.inf)])
@example([2.0**-25, math.nextafter(2.0**-25, 1), 2.0**-24, 3 * 2.0**-25])
@settings(deadline=None)
def test_an_embedding_is_rounded_to_the_nearest_or_refused(values):
    z = torch.tensor([values], dtype=torch.float32)
    if z.abs().max() > HIGHEST:
        with pytest.raises(TensorError, match=r"step 3: the embedding has numbers up to .* float16 ends at 65504; .*"):
            rounded(z, "step 3")
        return
    found = rounded(z, "step 3")
    assert found.dtype is torch.float16
    assert found.numpy().tobytes() == z.numpy().astype(np.float16).tobytes(), "another library rounds otherwise"
    apart = (found.double() - z.double()).abs()
    assert (apart <= (z.double().abs() * 2.0**-11).clamp(min=2.0**-25)).all()


@pytest.mark.parametrize(
    ("value", "words"),
    [(3e38, "end the bottom model with a normalization, or agree on")]
    + [(value, "look at inputs and learning rates") for value in (math.inf, -math.inf, math.nan)],
)
def test_what_is_no_number_or_far_too_large_is_refused(value, words):
    with pytest.raises(TensorError, match=f"nothing was sent: {words}"):
        rounded(torch.tensor([[1.0, value]]), "step 0")


@given(st.lists(st.floats(-1, 1, width=32) | floats | subnormal, min_size=1, max_size=8), st.integers(-140, 100))
@example([0.0, -0.0], 0)
@example([TINY], 0)
@example([3.4e38, 1.0], 0)
@example([1.0, 2.0**-30, 2.0**-40, 2.0**-41], 0)
@settings(deadline=None)
def test_gradients_lose_their_last_bits_whatever_their_scale(values, power):
    gradient = torch.tensor([values], dtype=torch.float64).mul(2.0**power).to(torch.float32).clamp(-3.4e38, 3.4e38)
    payload = scaled(gradient)
    found = unscaled(payload, gradient.shape)
    assert (payload.dtype, payload.shape) == (torch.float16, (gradient.numel() + 1,))
    assert torch.isfinite(payload).all(), "nothing overflows"
    largest = float(gradient.abs().max())
    if largest:
        assert 2.0**14 <= float(payload[:-1].abs().max()) <= 2.0**15
    apart = (found.double() - gradient.double()).abs()
    least = max(largest * 2.0**-39, TINY)  # of the largest, that is left of what is far smaller
    assert (apart <= (gradient.double().abs() * 2.0**-11).clamp(min=least)).all()
    if float(payload[:-1].abs().max()) < 2.0**15:  # rounded up to that, the next scale is another one
        assert torch.equal(unscaled(scaled(found), gradient.shape), found), "rounded once, it stays as it is"


def test_the_scale_is_a_power_of_two_that_the_protected_numbers_show():
    """It is a function of them alone: float32 would have shown it as well."""
    gradient = torch.tensor([[3e-5, -1.2e-4], [0.0, 1e-9]])
    payload = scaled(gradient)
    power = int(payload[-1])
    assert power == 15 - math.frexp(1.2e-4)[1]
    assert torch.equal(payload[:-1].float(), (gradient * 2.0**power).half().float().flatten())
    assert torch.equal(payload, scaled(gradient.clone())), "and nothing else"
    assert torch.equal(scaled(gradient * 2.0**-60)[:-1], payload[:-1])


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_gradients_that_are_not_finite_stay_so_and_are_refused_by_whoever_gets_them(value):
    payload = scaled(torch.tensor([[1.0, value]]))
    assert not torch.isfinite(payload).all()
    assert "not finite" in wrong_gradient(payload, LARGEST)


@pytest.mark.parametrize(
    ("last", "says"), [(0.5, "power of 0.5"), (201.0, "power of 201"), (-201.0, "power of -201"), (math.nan, "nan")]
)
def test_a_power_that_no_party_sends_is_refused(last, says):
    payload = torch.tensor([1.0, 2.0, last], dtype=torch.float16)
    assert says in wrong_gradient(payload, LARGEST)
    with pytest.raises(TensorError, match="multiplied by"):
        unscaled(payload, (1, 2))


def test_numbers_that_are_too_large_when_they_are_read_are_refused():
    assert wrong_gradient(scaled(torch.tensor([[0.9 * LARGEST]])), LARGEST) == ""
    assert "beyond 1e+06" in wrong_gradient(scaled(torch.tensor([[1.1 * LARGEST]])), LARGEST)
    assert "not finite" in wrong_gradient(torch.tensor([1.0, -200.0], dtype=torch.float16), LARGEST)


def test_rows_that_are_alike_are_seen_in_large_float16_numbers():
    """Their norms are beyond float16."""
    z = torch.full((64, 128), 60000.0, dtype=torch.float16)
    assert alike(z) == 1.0
    assert alike(z * torch.rand(64, 128, generator=torch.Generator().manual_seed(1)).half()) < 0.1


# --- both parties ----------------------------------------------------------------------------------------------------


def data():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(ROWS, INPUTS, generator=generator)
    return x, (x[:, 0] + torch.randn(ROWS, generator=generator) > 0.5).float()


def halves():
    bottom, _ = mlp(INPUTS, widths=(8, WIDTH), cut=2, generator=torch.Generator().manual_seed(0))
    top = nn.Linear(WIDTH, 1)
    nn.init.normal_(top.weight, generator=torch.Generator().manual_seed(99))
    nn.init.zeros_(top.bias)
    return bottom, top


def adam(module):
    return torch.optim.Adam(module.parameters(), lr=0.02)


def parties(*, float16=True, bottom=None, **more):
    x, labels = data()
    made, top = halves()
    bottom = bottom or made
    features = FeatureParty(bottom=bottom, features=x, optimizer=adam(bottom), float16=float16, **more)
    label = LabelParty(top=top, labels=labels, optimizer=adam(top), protect=none(), noise=torch.Generator())
    return features, label, pair()


def plain(epochs):
    """The same training in plain PyTorch, rounded by numpy: no code of ours but the batches."""
    bottom, top = halves()
    below, above = adam(bottom), adam(top)
    x, labels = data()
    for epoch in range(epochs):
        for rows in batches(ROWS, BATCH, epoch=epoch, seed=SEED):
            z = bottom(x[rows])
            cut = torch.from_numpy(z.detach().numpy().astype(np.float16).astype(np.float32)).requires_grad_()
            loss = functional.binary_cross_entropy_with_logits(top(cut).squeeze(1), labels[rows])
            for one in (below, above):
                one.zero_grad()
            loss.backward()
            gradient = cut.grad.numpy()
            scale = np.float32(2.0 ** (14 - math.floor(math.log2(np.abs(gradient).max()))))
            z.backward(torch.from_numpy((gradient * scale).astype(np.float16).astype(np.float32) / scale))
            below.step()
            above.step()
    return bottom, top


def split(epochs=3, float16=True, protect=None, **more):
    bottom, top = halves()
    x, labels = data()
    return simulate(
        bottom=bottom, top=top, features=x, labels=labels, protect=protect or none(), optimizer=adam, epochs=epochs,
        batch_size=BATCH, seed=SEED, float16=float16, **more,
    )  # fmt: skip


def same(one, two):
    return all(torch.equal(value, two.state_dict()[name]) for name, value in one.state_dict().items())


def test_the_model_is_that_of_rounded_numbers_bit_for_bit():
    bottom, top = plain(3)
    trained = split()
    assert same(trained.bottom, bottom)
    assert same(trained.top, top)
    assert not same(split(float16=False).bottom, bottom)


def test_what_is_recorded_is_what_left():
    recorder = Recorder(last=6)
    trained = split(1, protect=matched(leak_auc=0.6, warmup=1), protect_embedding=[gaussian(snr=4.0)], record=recorder)
    kept = recorder.batches()
    assert kept.view.embedding.dtype is kept.view.gradient.dtype is torch.float32
    assert torch.equal(kept.view.embedding, kept.view.embedding.half().float())
    assert all(torch.equal(unscaled(scaled(one), one.shape), one) for one in kept.view.gradient)
    assert not torch.equal(kept.view.gradient, kept.clean), "it is protected"
    z = trained.embed(data()[0], noise=torch.Generator().manual_seed(1))
    assert torch.equal(z, z.half().float()), "also where rows are served"


def test_both_sides_know_the_same_bits_and_these_are_on_the_wire():
    features, label, (left, right) = parties()
    rows = torch.arange(BATCH)
    sent = features.send(rows, left)
    message = right.incoming[0]
    assert message.payload.dtype is torch.float16
    seen = label.step(rows, right)
    answer = left.incoming[0]
    assert (answer.payload.dtype, answer.payload.shape) == (torch.float16, (BATCH * WIDTH + 1,))
    received = features.finish(left)
    assert torch.equal(seen["embedding"], sent)
    assert torch.equal(received["embedding"], message.payload.float())
    assert torch.equal(received["gradient"], seen["sent"])
    assert not torch.equal(received["own_embedding"], received["embedding"]), "its own is not rounded"
    assert not torch.equal(seen["clean"], seen["sent"])
    features.send_evaluation(rows, left)
    assert right.incoming[0].payload.dtype is torch.float16
    assert label.evaluate(rows, right).dtype is torch.float32


def test_several_feature_parties_are_answered_at_scales_of_their_own():
    (one, label, ends), (two, _, others) = parties(), parties()
    label.top = top = nn.Bilinear(WIDTH, WIDTH, 1)
    with torch.no_grad():
        for values in one.bottom.parameters():
            values.mul_(100)
    label.optimizer = adam(top)
    rows = torch.arange(BATCH)
    one.send(rows, ends[0])
    two.send(rows, others[0])
    seen = label.step(rows, [ends[1], others[1]])
    powers = [int(end.incoming[0].payload[-1]) for end in (ends[0], others[0])]
    assert powers[0] > powers[1] + 3
    got = torch.cat([party.finish(end)["gradient"] for party, end in ((one, ends[0]), (two, others[0]))], dim=1)
    assert torch.equal(got, seen["sent"])


class Huge(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 1e6


def test_an_embedding_that_does_not_fit_changes_nothing_and_nothing_leaves():
    features, _, (left, right) = parties(bottom=Huge(INPUTS, WIDTH))
    left_already = []
    rows = torch.arange(BATCH)
    for _ in range(2):  # the step is not open either: it can be tried again
        with pytest.raises(TensorError, match="step 0: the embedding has numbers up to"):
            features.send(rows, left, leaving=lambda: left_already.append(1))
        with pytest.raises(TensorError, match="evaluation 0: the embedding has numbers up to"):
            features.send_evaluation(rows, left, leaving=lambda: left_already.append(1))
    assert not right.incoming
    assert not left_already, "the ledger has nothing of it"


def test_the_other_dtype_is_refused_and_the_bottom_stays_as_it_is():
    rows = torch.arange(BATCH)
    wrong = torch.ones(BATCH, WIDTH)
    for float16, payload in ((True, wrong), (True, wrong.half()), (False, scaled(wrong)), (False, wrong.half())):
        features, _, (left, right) = parties(float16=float16)
        before = [value.clone() for value in features.bottom.parameters()]
        features.send(rows, left)
        right.send(Message(0, "gradient", payload, digest(rows)))
        with pytest.raises(TensorError, match=r"is due; the model was not changed"):
            features.finish(left)
        assert all(torch.equal(one, two) for one, two in zip(before, features.bottom.parameters(), strict=True))
