"""The two losses against formulas by hand, and labels that they have no use for."""

import pytest
import torch
from torch import nn

from tacit.align.batches import digest
from tacit.contracts import Message
from tacit.errors import LabelsError, TensorError, UsageError
from tacit.split.label_party import LOSSES, LabelParty, check_labels
from tacit.split.protect.gradient import chain
from tacit.split.protect.gradient.clip import clip
from tacit.split.protect.gradient.iso import iso
from tacit.split.protect.gradient.marvell import marvell
from tacit.split.protect.gradient.matched import matched
from tacit.split.protect.gradient.max_norm import max_norm
from tacit.split.protect.gradient.none import none
from tacit.split.simulate import pair, simulate
from tests.plain_network import mlp

ROWS, WIDTH = 9, 4


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cut_gradient(top, labels, loss):
    """What a label party computes at the cut, and what its top's parameters get."""
    left, right = pair()
    rows = torch.arange(ROWS)
    party = LabelParty(
        top=top, labels=labels, optimizer=torch.optim.SGD(top.parameters(), lr=0.0), protect=none(),
        noise=torch.Generator(), loss=loss,
    )  # fmt: skip
    left.send(Message(0, "embedding", normal(ROWS, WIDTH), digest(rows)))
    figures = party.step(rows, right)
    return figures, left.recv("gradient", 0).payload


def linear(weight, bias):
    top = nn.Linear(WIDTH, len(weight), dtype=torch.float64)
    with torch.no_grad():
        top.weight.copy_(weight), top.bias.copy_(bias)
    return top


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.bool])
def test_two_logits_give_the_gradient_of_one_logit_and_of_the_formula(dtype):
    """g = (p - y) / B times the difference of the two logits' weights, p the softmax's second entry."""
    labels = torch.tensor([0, 1, 1, 0, 0, 1, 0, 0, 1]).to(dtype)
    weight, bias = normal(2, WIDTH, seed=1), normal(2, seed=2)
    two, sent_two = cut_gradient(linear(weight, bias), labels, "softmax")
    one, sent_one = cut_gradient(linear(weight[1:] - weight[:1], bias[1:] - bias[:1]), labels, "binary")
    y, z = labels.double(), normal(ROWS, WIDTH)
    p = 1 / (1 + torch.exp(-(z @ (weight[1] - weight[0]) + bias[1] - bias[0])))
    by_hand = ((p - y) / ROWS)[:, None] * (weight[1] - weight[0])
    torch.testing.assert_close(sent_two, by_hand, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(sent_one, by_hand, rtol=1e-12, atol=1e-15)
    assert torch.equal(two["clean"], sent_two)
    cross_entropy = -(y * p.log() + (1 - y) * (1 - p).log()).mean()
    assert two["loss"].item() == pytest.approx(cross_entropy.item(), rel=1e-12)
    assert one["loss"].item() == pytest.approx(cross_entropy.item(), rel=1e-12)


def test_targets_outside_of_zero_and_one_are_linear_in_both_losses():
    logits = normal(ROWS, 2)
    zero, one = torch.zeros(ROWS), torch.ones(ROWS)
    for name, x in (("softmax", logits), ("binary", logits[:, 1] - logits[:, 0])):
        at = LOSSES[name](x, torch.full((ROWS,), 1.25))
        torch.testing.assert_close(at, 1.25 * LOSSES[name](x, one) - 0.25 * LOSSES[name](x, zero))


def test_several_classes_train():
    generator = torch.Generator().manual_seed(3)
    centres = 3 * torch.randn(10, 12, generator=generator)
    labels = torch.randint(10, (3000,), generator=generator)
    x = centres[labels] + torch.randn(3000, 12, generator=generator)
    bottom, top = mlp(12, widths=(32, 32), logits=10, generator=generator)
    run = simulate(
        bottom=bottom, top=top, features=x[:2000], labels=labels[:2000], protect=none(), loss="softmax", epochs=5,
        batch_size=50, optimizer=lambda module: torch.optim.Adam(module.parameters(), lr=0.01),
    )  # fmt: skip
    right = (run.predict(x[2000:]).argmax(1) == labels[2000:]).float().mean()
    assert right > 0.97  # 1.000 was measured with four seeds; guessing gives 0.1


PROTECTIONS = [clip(1.0), iso(1.0), marvell(scale=4.0), matched(leak_auc=0.6), max_norm()]


@pytest.mark.parametrize("protect", PROTECTIONS, ids=lambda protect: protect.name)
def test_a_label_protection_with_several_classes_is_refused(protect):
    bottom, top = mlp(3, widths=(4,), logits=3)
    labels = torch.tensor([0, 1, 2, 1])
    for one in (protect, chain(none(), protect)):
        with pytest.raises(LabelsError, match=r"more classes.*none\(\)"):
            simulate(
                bottom=bottom, top=top, features=torch.ones(4, 3), labels=labels, protect=one, loss="softmax",
                batch_size=4,
            )  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "loss", "says"),
    [
        ([0.0, float("nan")], "binary", "label nan of row 1 .*use 0, 1"),
        ([0.0, float("nan")], "softmax", "label nan of row 1 .*use 0, 1"),
        ([float("inf"), 0.0], "softmax", "label inf of row 0 .*use 0, 1"),
        ([0.0, 0.5], "binary", r"label 0\.5 of row 1 .*use 0, 1"),
        ([1, -1], "softmax", "label -1 of row 1 .*use 0, 1"),
        ([0, 1, 2], "binary", "label 2 of row 2 .*use the loss 'softmax'"),
        ([0.0, 1.0, 2.0], "softmax", r"label 2\.0 of row 2 .*as integers"),
        ([], "binary", "one label for each example"),
        ([[0, 1]], "binary", "one label for each example"),
    ],
)
def test_labels_that_no_loss_has_a_use_for(labels, loss, says):
    with pytest.raises(LabelsError, match=says):
        check_labels(torch.tensor(labels), loss)


def test_classes_are_counted_and_an_unknown_loss_is_refused():
    assert check_labels(torch.tensor([0, 7, 2]), "softmax") == 8
    assert check_labels(torch.tensor([0, 0]), "binary") == check_labels(torch.tensor([True]), "binary") == 2
    with pytest.raises(UsageError, match="no loss 'hinge'; there are: binary, softmax"):
        check_labels(torch.tensor([0, 1]), "hinge")


@pytest.mark.parametrize(
    ("loss", "logits", "error", "says"),
    [
        ("binary", 2, TensorError, r"one logit for each row.*\(9, 2\).*'softmax'"),
        ("softmax", 1, TensorError, r"\(rows, classes\).*\(9, 1\).*one output for each class"),
        ("softmax", 2, LabelsError, "3 classes, but the top model has only 2 logits"),
    ],
)
def test_a_top_with_too_few_or_too_many_logits(loss, logits, error, says):
    labels = torch.tensor([0, 1, 0, 1, 0, 1, 1, 0, 2 if logits == 2 and loss == "softmax" else 0])
    with pytest.raises(error, match=says):
        cut_gradient(nn.Linear(WIDTH, logits, dtype=torch.float64), labels, loss)
