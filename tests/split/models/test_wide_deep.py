"""The Wide&Deep halves: the papers' sizes, one network wherever it is cut, and inputs that are refused."""

import pytest
import torch
from torch import nn

from benchmarks.step import Unsplit
from tacit.errors import TensorError, UsageError
from tacit.split.models import Columns, WideDeepBottom, WideDeepTop, wide_deep

CARDINALITIES = (5, 3, 11)


def size(module):
    return sum(p.numel() for p in module.parameters())


def batch(rows=16, seed=0):
    g = torch.Generator().manual_seed(seed)
    codes = torch.stack([torch.randint(n, (rows,), generator=g) for n in CARDINALITIES], dim=1)
    return codes, torch.randn(rows, 4, generator=g)


def pair(seed=1, **options):
    return wide_deep(CARDINALITIES, 4, generator=torch.Generator().manual_seed(seed), **options)


@pytest.mark.parametrize("cut", range(1, 7))
def test_shapes_and_names_for_every_cut(cut):
    bottom, top = pair(cut=cut, own_cardinalities=(4, 2), own_numeric=3)
    z = bottom(*batch())
    assert z.shape == (16, 128)
    assert (z >= 0).all(), "the cut is after the ReLU"
    assert top(z, torch.ones(16, 2, dtype=torch.int64), torch.zeros(16, 3)).shape == (16,)
    assert bottom.layer_names() + top.layer_names() == [f"layer{i}" for i in range(1, 7)]
    assert len(bottom.layer_names()) == cut


def test_size_of_the_papers_criteo_network():
    # 26 categorical and 13 numeric columns; the wide part sees the same columns.
    categories = [100 + i for i in range(26)]
    rows = sum(categories)
    bottom, top = wide_deep(categories, 13, own_cardinalities=categories, own_numeric=13)
    hidden = 128 * 128 + 128
    assert size(bottom) == 4 * rows + ((26 * 4 + 13) * 128 + 128) + 2 * hidden
    assert size(top) == 3 * hidden + (128 + 1) + rows + (26 + 13 + 1)


def test_size_of_the_papers_avazu_network_without_numbers():
    bottom, top = wide_deep([50] * 21, 0, own_cardinalities=[50] * 21)
    assert size(bottom) == 4 * 1050 + (84 * 128 + 128) + 2 * 16512
    assert size(top) == 3 * 16512 + 129 + 1050 + 22
    assert top(bottom(torch.zeros(2, 21, dtype=torch.int64)), torch.zeros(2, 21, dtype=torch.int64)).shape == (2,)


def test_cut_after_the_last_layer_leaves_only_a_logit():
    bottom, top = pair(cut=4, layers=4)
    assert [name for name, _ in top.named_parameters()] == ["logit.weight", "logit.bias"]
    z = bottom(*batch())
    torch.testing.assert_close(top(z), z @ top.logit.weight[0] + top.logit.bias[0])


def test_eight_layers_in_the_bottom_and_the_usual_top():
    bottom, top = pair(cut=8, layers=11)
    assert (len(bottom.layer_names()), len(top.layer_names())) == (8, 3)


def test_several_logits():
    bottom, top = pair(logits=10, own_numeric=2)
    assert top(bottom(*batch()), None, torch.zeros(16, 2)).shape == (16, 10)


@pytest.mark.parametrize("cut", range(1, 7))
@pytest.mark.parametrize("own", [{}, {"own_cardinalities": (4,), "own_numeric": 2}])
def test_the_same_seed_gives_the_same_network_wherever_it_is_cut(cut, own):
    mine = (torch.arange(16)[:, None] % 4, torch.ones(16, 2)) if own else ()
    here, there = Unsplit(*pair(cut=cut, **own)), Unsplit(*pair(cut=3, **own))
    a, b = here(batch(), mine), there(batch(), mine)
    assert torch.equal(a, b)
    a.square().mean().backward()
    b.square().mean().backward()
    grads = [{name.split(".", 1)[1]: p.grad for name, p in net.named_parameters()} for net in (here, there)]
    assert grads[0].keys() == grads[1].keys()
    assert all(torch.equal(grads[0][name], grads[1][name]) for name in grads[0])


def test_equals_a_network_written_down_plainly():
    bottom, top = pair(own_cardinalities=(4, 2), own_numeric=3)
    codes, numbers = batch()
    own_codes, own_numbers = torch.stack([torch.arange(16) % 4, torch.arange(16) % 2], dim=1), torch.randn(16, 3)
    tables = bottom.inputs.table.weight.split(CARDINALITIES)
    h = torch.cat([*(table[codes[:, i]] for i, table in enumerate(tables)), numbers], dim=1)
    for name in bottom.layer_names():
        h = torch.relu(bottom.get_submodule(name).linear(h))
    for name in top.layer_names():
        h = torch.relu(top.get_submodule(name).linear(h))
    wide = [table[own_codes[:, i]] for i, table in enumerate(top.own.table.weight.split((4, 2)))]
    wanted = top.logit(h) + top.wide(torch.cat([*wide, own_numbers], dim=1))
    assert torch.equal(top(bottom(codes, numbers), own_codes, own_numbers), wanted[:, 0])


def test_gradients_through_a_detached_cut_equal_the_unsplit_ones():
    bottom, top = pair(own_numeric=2)
    labels, own = torch.arange(16) % 2.0, torch.randn(16, 2)
    loss = nn.functional.binary_cross_entropy_with_logits
    loss(Unsplit(bottom, top)(batch(), (None, own)), labels).backward()
    wanted = [p.grad.clone() for m in (bottom, top) for p in m.parameters()]
    bottom.zero_grad()
    top.zero_grad()
    z = bottom(*batch())
    received = z.detach().requires_grad_()
    loss(top(received, None, own), labels).backward()
    z.backward(received.grad)
    assert all(torch.equal(a, p.grad) for a, p in zip(wanted, [*bottom.parameters(), *top.parameters()], strict=True))


def test_the_gradient_of_any_layer_can_be_read_by_name():
    bottom, top = pair()
    seen = {}
    for name in ["inputs", *bottom.layer_names()]:

        def watch(module, inputs, output, name=name):
            output.register_hook(lambda g: seen.update({name: g}))

        bottom.get_submodule(name).register_forward_hook(watch)
    top(bottom(*batch())).sum().backward()
    assert {name: tuple(g.shape) for name, g in seen.items()} == {
        "inputs": (16, 16),
        "layer1": (16, 128),
        "layer2": (16, 128),
        "layer3": (16, 128),
    }


def test_a_generator_decides_the_weights_and_leaves_torchs_own_alone():
    before = torch.get_rng_state()
    first, second, other = pair(seed=3)[0], pair(seed=3)[0], pair(seed=4)[0]
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.layer1.linear.weight, other.layer1.linear.weight)


def test_without_a_generator_torchs_seed_decides():
    torch.manual_seed(9)
    first = WideDeepTop()
    torch.manual_seed(9)
    second = WideDeepTop()
    assert torch.equal(first.logit.weight, second.logit.weight)


def test_first_weights_are_glorot_uniform_for_each_column():
    net = Columns([20_000, 2], 0, embedding=4, generator=torch.Generator().manual_seed(0))
    large, small = net.table.weight.detach().split([20_000, 2])
    bound = (6 / 20_004) ** 0.5
    assert large.abs().max() <= bound
    assert large.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    assert small.abs().max() > bound, "the small column has its own, larger bound"


def test_sparse_gradients_equal_dense_ones():
    dense, sparse = pair()[0], pair(sparse=True)[0]
    for bottom in (dense, sparse):
        bottom(*batch()).square().sum().backward()
    grad = sparse.inputs.table.weight.grad
    assert grad.is_sparse
    torch.testing.assert_close(grad.to_dense(), dense.inputs.table.weight.grad)


def test_training_reduces_the_loss(assert_learns):
    bottom, top = pair(own_numeric=2)
    net, own = Unsplit(bottom, top), torch.randn(16, 2)
    labels = (batch()[0].sum(1) % 2).float()
    assert_learns(net, labels, batch(), (None, own))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cut": 0}, "cut must be from 1 to 6, not 0"),
        ({"cut": 7}, "cut must be from 1 to 6, not 7"),
        ({"cut": True}, "cut must be a whole number"),
        ({"cut": 2.0}, "cut must be a whole number"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"width": 0}, "width must be at least 1"),
        ({"embedding": 0}, "embedding must be at least 1"),
        ({"logits": 0}, "logits must be at least 1"),
        ({"own_numeric": -1}, "own_numeric must be at least 0"),
        ({"own_cardinalities": (3, 0)}, r"own_cardinalities\[1\] must be at least 1, not 0"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(UsageError, match=message):
        pair(**options)


def test_no_column_at_all_and_an_empty_column_are_refused():
    with pytest.raises(UsageError, match="there is no input: give cardinalities, numeric or both"):
        wide_deep([], 0)
    with pytest.raises(UsageError, match=r"cardinalities\[2\] must be at least 1, not 0"):
        wide_deep([3, 4, 0], 1)
    with pytest.raises(UsageError, match="cut must be at least 1"):
        WideDeepBottom([3], 0, cut=0)


@pytest.mark.parametrize("code", [-1, 3, 2**40])
@pytest.mark.parametrize("row", [0, 15])
def test_a_code_outside_its_column_is_named(code, row):
    codes, numbers = batch()
    codes[row, 1] = code
    with pytest.raises(TensorError, match=f"categorical column 1 holds the code {code}, but its codes run from 0 to 2"):
        pair()[0](codes, numbers)


def test_a_code_outside_its_column_is_named_for_the_label_party_too():
    top = WideDeepTop(own_cardinalities=(2, 2))
    with pytest.raises(TensorError, match=r"own_categorical column 1 holds the code 2.*own_cardinalities\[1\]"):
        top(torch.zeros(1, 128), torch.tensor([[1, 2]]))


@pytest.mark.parametrize(
    ("categorical", "numeric", "message"),
    [
        (None, torch.zeros(2, 4), r"categorical is missing: .* \(batch, 3\)"),
        (torch.zeros(2, 3, dtype=torch.int64), None, "numeric is missing"),
        (torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 4), r"categorical must be of shape \(batch, 3\)"),
        (torch.zeros(3, dtype=torch.int64), torch.zeros(2, 4), r"categorical must be of shape"),
        (torch.zeros(2, 3), torch.zeros(2, 4), "categorical must hold integer codes"),
        (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 4).long(), "numeric must be a floating point tensor"),
        (torch.zeros(1, 3, dtype=torch.int64), torch.zeros(2, 4), "categorical has 1 rows, numeric has 2 rows"),
    ],
)
def test_wrong_inputs_are_named(categorical, numeric, message):
    with pytest.raises(TensorError, match=message):
        pair()[0](categorical, numeric)


def test_the_top_refuses_what_it_was_not_built_for():
    plain, wide = WideDeepTop(), WideDeepTop(own_numeric=2)
    z = torch.zeros(4, 128)
    with pytest.raises(TensorError, match=r"own_numeric must be of shape \(batch, 0\)"):
        plain(z, None, torch.zeros(4, 2))
    with pytest.raises(TensorError, match="own_numeric is missing"):
        wide(z)
    with pytest.raises(TensorError, match="z has 4 rows, own has 1 rows"):
        wide(z, None, torch.zeros(1, 2))
    with pytest.raises(TensorError, match=r"z must be of shape \(batch, 128\), not \(4, 64\)"):
        plain(torch.zeros(4, 64))


def test_an_empty_batch_and_small_integers_pass():
    bottom = pair()[0]
    assert bottom(torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0, 4)).shape == (0, 128)
    codes, numbers = batch()
    assert torch.equal(bottom(codes.int(), numbers), bottom(codes, numbers))
