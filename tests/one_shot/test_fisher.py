import pytest
import torch
from torch import nn

from tacit.align.encoder import Columns, Inputs
from tacit.errors import UsageError
from tacit.one_shot.fisher import fisher_bound

COLUMNS = Columns(("town",), ("a", "b"))


class Line(nn.Module):
    """z = numbers @ weight, codes left out."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, _, numeric):
        return numeric @ self.weight


def rows(count=2000):
    g = torch.Generator().manual_seed(0)
    return Inputs(torch.zeros(count, 1, dtype=torch.int64), torch.randn(count, 2, generator=g), (2,))


def test_of_a_line_it_is_known():
    weight = torch.tensor([[2.0, 0.0], [0.0, 0.5]])
    bound = fisher_bound(Line(weight), rows(), COLUMNS, scale=0.5)
    assert bound["a"] == pytest.approx(0.25 / 4)
    assert bound["b"] == pytest.approx(0.25 / 0.25)


def test_no_unbiased_decoder_is_better_and_the_best_one_reaches_it():
    weight = torch.tensor([[2.0, 0.0], [0.0, 0.5]])
    made = rows(20_000)
    noise = 0.5 * torch.randn(20_000, 2, generator=torch.Generator().manual_seed(1))
    read = (made.numeric @ weight + noise) @ weight.inverse()
    error = (read - made.numeric).square().mean(0)
    bound = fisher_bound(Line(weight), made, COLUMNS, scale=torch.tensor([0.5, 0.5]))
    assert error[0].item() == pytest.approx(bound["a"], rel=0.05)
    assert error[1].item() == pytest.approx(bound["b"], rel=0.05)


def test_the_bottom_is_left_as_it_was():
    bottom = Line(torch.eye(2)).train()
    fisher_bound(bottom, rows(), COLUMNS, scale=1.0)
    assert bottom.training
    assert bottom.weight.grad is None


def test_what_has_no_bound_is_refused():
    with pytest.raises(UsageError, match="trees"):
        fisher_bound(object(), rows(), COLUMNS, scale=1.0)
    with pytest.raises(UsageError, match="needs noise"):
        fisher_bound(Line(torch.eye(2)), rows(), COLUMNS, scale=0.0)
    none = Inputs(torch.zeros(9, 1, dtype=torch.int64), torch.zeros(9, 0), (2,))
    with pytest.raises(UsageError, match="for categories"):
        fisher_bound(Line(torch.eye(2)), none, Columns(("town",)), scale=1.0)

    class Steps(nn.Module):
        def forward(self, _, numeric):
            return (numeric.detach() > 0).float()

    with pytest.raises(UsageError, match="no slope"):
        fisher_bound(Steps(), rows(), COLUMNS, scale=1.0)
