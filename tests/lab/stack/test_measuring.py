"""AUC by pairs against AUC by sorting."""

import torch

from tacit.audit.metrics.leak_auc import auc
from tacit.lab.stack.measuring import pairwise_auc


def test_pairs_and_sorting_agree_with_ties_and_rows_that_do_not_count():
    generator = torch.Generator().manual_seed(0)
    score = torch.randint(9, (4, 3, 60), generator=generator).double()
    label = (torch.rand(4, 3, 60, generator=generator) < 0.3).float()
    counted = torch.rand(4, 3, 60, generator=generator) < 0.8
    assert torch.allclose(pairwise_auc(score, label, counted), auc(score, label, counted), atol=1e-12)


def test_a_batch_that_lacks_a_class_has_no_auc():
    none = pairwise_auc(torch.rand(2, 5).double(), torch.zeros(2, 5), torch.ones(2, 5, dtype=torch.bool))
    assert bool(none.isnan().all())
