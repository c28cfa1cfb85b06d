"""Norms by class, against NumPy's histogram."""

import numpy as np
import torch

from tacit.audit.norms import norms_by_class


def test_counts_are_those_of_numpy():
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(500, generator=generator) < 0.3).float()
    gradient = torch.randn(500, 8, generator=generator) * (1 + 4 * labels[:, None])
    found = norms_by_class(gradient, labels, bins=12)
    norms = gradient.double().norm(dim=1).numpy()
    edges = np.geomspace(found["low"], found["high"], 13)
    edges[0], edges[-1] = norms.min(), norms.max()
    for one in (0, 1):
        assert found["counts"][one] == np.histogram(norms[labels.numpy() == one], edges)[0].tolist()
    assert sum(map(sum, found["counts"])) == 500


def test_zeros_and_equal_norms_are_counted():
    gradient = torch.ones(6, 2, 2)
    gradient[0] = 0
    found = norms_by_class(gradient, torch.tensor([0, 0, 0, 1, 1, 1]), bins=4)
    assert found["low"] < 2.0 < found["high"]
    assert [sum(counts) for counts in found["counts"]] == [3, 3]
    assert found["counts"][0][0] == 1


def test_a_batch_of_zeros_has_no_norms():
    assert norms_by_class(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])) is None


def test_norms_that_are_not_finite_are_left_out_and_the_smallest_have_a_bin():
    gradient = torch.tensor([[float("inf")], [float("nan")], [1e-60], [1e60]], dtype=torch.float64)
    found = norms_by_class(gradient, torch.tensor([0, 1, 0, 1]), bins=2)
    assert (found["low"], found["high"]) == (1e-60, 1e60)
    assert found["counts"] == [[1, 0], [0, 1]]
    assert norms_by_class(gradient[:2], torch.tensor([0, 1])) is None
