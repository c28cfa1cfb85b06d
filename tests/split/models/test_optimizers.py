"""Row-wise Adam: torch's Adam where every row is touched, no change anywhere else."""

import copy
import io

import pytest
import torch
from torch import nn

from tacit.errors import TensorError, UsageError
from tacit.split.models import RowwiseAdam, adam, wide_deep


def tables(rows=6, width=3):
    weight = torch.randn(rows, width, generator=torch.Generator().manual_seed(0))
    return [nn.Embedding.from_pretrained(weight.clone(), freeze=False, sparse=sparse) for sparse in (True, False)]


def train(table, optimizer, batches, scale=1.0):
    for step, codes in enumerate(batches):
        target = torch.sin(torch.arange(codes.numel() * 3).reshape(-1, 3) + step)
        optimizer.zero_grad()
        (scale * (table(codes) - target).square().sum()).backward()
        optimizer.step()


@pytest.mark.parametrize("scale", [1.0, 1e-8])
def test_equals_torchs_adam_where_every_row_is_touched_every_step(scale):
    rowwise, dense = tables()
    g = torch.Generator().manual_seed(3)
    batches = [torch.cat([torch.randperm(6, generator=g), torch.randint(6, (4,), generator=g)]) for _ in range(30)]
    train(rowwise, adam(rowwise, lr=0.02), batches, scale)
    train(dense, torch.optim.Adam(dense.parameters(), lr=0.02), batches, scale)
    torch.testing.assert_close(rowwise.weight, dense.weight, rtol=1e-5, atol=1e-6)


def test_sparse_adam_of_torch_would_not_do_with_small_gradients():
    sparse, dense = tables()
    batches = [torch.arange(6)] * 5
    train(sparse, torch.optim.SparseAdam(sparse.parameters(), lr=0.02), batches, scale=1e-8)
    train(dense, torch.optim.Adam(dense.parameters(), lr=0.02), batches, scale=1e-8)
    assert (sparse.weight - dense.weight).abs().max() > 0.01


def test_dense_parameters_equal_torchs_adam_bit_for_bit():
    nets = [wide_deep([4, 5], 2, generator=torch.Generator().manual_seed(1))[0] for _ in range(2)]
    optimizers = [adam(nets[0], lr=1e-2, betas=(0.8, 0.95), eps=1e-7)]
    optimizers.append(torch.optim.Adam(nets[1].parameters(), lr=1e-2, betas=(0.8, 0.95), eps=1e-7))
    for step in range(5):
        codes, numbers = torch.full((8, 2), step % 4), torch.linspace(-1, 1, 16).reshape(8, 2) + step
        for net, optimizer in zip(nets, optimizers, strict=True):
            optimizer.zero_grad()
            net(codes, numbers).square().mean().backward()
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True))


def test_untouched_rows_and_their_averages_stay():
    table, _ = tables()
    optimizer = adam(table, lr=0.1)
    train(table, optimizer, [torch.arange(6)])
    before, state = table.weight.detach().clone(), copy.deepcopy(optimizer.state[table.weight])
    train(table, optimizer, [torch.tensor([1, 4, 4])] * 3)
    after = optimizer.state[table.weight]
    rest, touched = [0, 2, 3, 5], [1, 4]
    assert torch.equal(table.weight[rest], before[rest])
    assert (table.weight[touched] != before[touched]).all()
    for name in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(after[name][rest], state[name][rest])
        assert (after[name][touched] != state[name][touched]).all()
    assert after["step"] == 4


def test_a_code_that_comes_twice_counts_its_summed_gradient_once():
    twice, _ = tables()
    once = copy.deepcopy(twice)
    for table, codes, factor in ((twice, [2, 2], 1.0), (once, [2], 2.0)):
        optimizer = adam(table)
        (factor * table(torch.tensor(codes)).square()).sum().backward()
        optimizer.step()
    torch.testing.assert_close(twice.weight, once.weight)


def test_state_survives_a_round_trip_through_bytes():
    def fresh():
        bottom, _ = wide_deep([6, 7], 2, sparse=True, generator=torch.Generator().manual_seed(5))
        return bottom, adam(bottom, lr=1e-2)

    def steps(net, optimizer, start, count):
        for step in range(start, start + count):
            codes = torch.tensor([[step % 6, step % 7], [1, 2]])
            optimizer.zero_grad()
            net(codes, torch.full((2, 2), 0.1 * step)).square().sum().backward()
            optimizer.step()

    through, resumed = fresh(), fresh()
    steps(*through, 0, 3)
    file = io.BytesIO()
    torch.save({"net": through[0].state_dict(), "optimizer": through[1].state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed[0].load_state_dict(saved["net"])
    resumed[1].load_state_dict(saved["optimizer"])
    steps(*through, 3, 3)
    steps(*resumed, 3, 3)
    pairs = list(zip(through[0].parameters(), resumed[0].parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    for a, b in pairs:
        for name in ("step", "exp_avg", "exp_avg_sq"):
            assert torch.equal(through[1].state[a][name], resumed[1].state[b][name])


def test_torchs_adam_reads_the_state():
    rowwise, dense = tables()
    optimizer = adam(rowwise)
    train(rowwise, optimizer, [torch.arange(6)])
    other = torch.optim.Adam(dense.parameters())
    other.load_state_dict(optimizer.state_dict() | {"param_groups": other.state_dict()["param_groups"]})
    assert torch.equal(other.state[dense.weight]["exp_avg"], optimizer.state[rowwise.weight]["exp_avg"])


def test_every_update_is_told_to_autograd():
    bottom, _ = wide_deep([6, 7], 2, sparse=True)
    optimizer = adam(bottom)
    early = bottom(torch.tensor([[0, 0]]), torch.ones(1, 2)).sum()
    bottom(torch.tensor([[0, 0]]), torch.ones(1, 2)).sum().backward()
    versions = [p._version for p in bottom.parameters()]
    optimizer.step()
    assert all(p._version > before for p, before in zip(bottom.parameters(), versions, strict=True))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        early.backward()


def test_closures_and_learning_rate_schedules_work():
    table, _ = tables()
    optimizer = adam(table, lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    def closure():
        optimizer.zero_grad()
        loss = table(torch.tensor([0, 1])).square().sum()
        loss.backward()
        return loss.item()

    first = optimizer.step(closure)
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    assert optimizer.step(closure) < first


def test_wrong_arguments_are_named():
    table, _ = tables()
    for options, message in [({"lr": 0}, "lr"), ({"betas": (0.9, 1.0)}, "betas"), ({"eps": 0}, "eps")]:
        with pytest.raises(UsageError, match=f"{message} must be"):
            adam(table, **options)
    with pytest.raises(UsageError, match="ReLU has no parameter to train"):
        adam(nn.ReLU())
    with pytest.raises(TypeError, match="fused"):
        adam(table, fused=True)


def test_a_sparse_gradient_of_entries_is_refused():
    weight = nn.Parameter(torch.zeros(3, 3))
    weight.grad = torch.eye(3).to_sparse()
    with pytest.raises(TensorError, match="must name rows"):
        RowwiseAdam([weight]).step()
