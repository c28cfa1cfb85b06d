import pytest
import torch
from sklearn.metrics import precision_score, recall_score

from papers.labelling import precision_recall
from tacit.audit.attacks.top_share import largest
from tacit.audit.metrics.detection_error import detection_error
from tacit.errors import UsageError


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_a_stack_equals_scikit_learn(share):
    g = torch.Generator().manual_seed(1)
    label = (torch.rand(4, 90, generator=g) < 0.3).long()
    score = (2 * torch.randn(4, 90, generator=g) + label).round()  # with ties
    called = largest(score, share)
    assert called.sum(-1).tolist() == [round(share * 90)] * 4
    assert all(s[c].min() >= s[~c].max() for s, c in zip(score, called, strict=True))
    precision, recall = precision_recall(called, label)
    pairs = list(zip(label, called, strict=True))
    assert precision.tolist() == pytest.approx([precision_score(y, c) for y, c in pairs], abs=1e-12)
    assert recall.tolist() == pytest.approx([recall_score(y, c) for y, c in pairs], abs=1e-12)
    wrong = [(r, recall_score(~y.bool(), ~c)) for (y, c), r in zip(pairs, recall.tolist(), strict=True)]
    errors = [1 - (hit + right) / 2 for hit, right in wrong]  # the mean of both rates of being wrong
    expected = [min(one, 1 - one) for one in errors]
    assert detection_error(called.double(), label).tolist() == pytest.approx(expected, abs=1e-12)


def test_a_tiny_share_still_calls_one_row():
    assert largest(torch.tensor([1.0, 3.0, 2.0]), 0.01).tolist() == [False, True, False]


def test_no_positive_row_has_no_recall():
    assert precision_recall(torch.rand(5) > 0.4, torch.zeros(5))[1].isnan()


@pytest.mark.parametrize("share", [0.0, 1.0, 30])
def test_other_shares_are_refused(share):
    with pytest.raises(UsageError, match="share"):
        largest(torch.rand(5), share)
