"""Split training on a GPU: asked for where there is none, changed in between, and trained with own halves."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from benchmarks._companies import align_rows
from tacit.errors import RefusedError, UsageError
from tacit.split import run as split_run
from tacit.split.train import train

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")


@pytest.fixture(name="aligned")
def _aligned(companies):
    for company in companies:
        own = np.arange(60) if company.config.role == "label" else 59 - np.arange(60)
        align_rows(company, own, id="00", seed=1, digest="00")
    return [company.path for company in companies]


def on(paths, device):
    for path in paths:
        kept = (path / "party.toml").read_text().replace("training.thr", f'training.device = "{device}"\ntraining.thr')
        assert device in kept
        (path / "party.toml").write_text(kept)


def trained(paths):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(train, paths, timeout=100))


def test_a_gpu_that_is_not_there_is_refused_before_anybody_is_spoken_to(aligned, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    on(aligned, "cuda")
    for path in aligned:
        with pytest.raises(UsageError, match=r"party.toml: \[training\] device: torch sees no CUDA device here"):
            train(path, waiting=lambda *_: pytest.fail("it waits for a peer"))


def test_a_run_goes_on_where_it_began(aligned, monkeypatch):
    trained(aligned)
    monkeypatch.setattr(split_run, "device_of", lambda folder: torch.device("cuda"))  # what its facts are made with
    with pytest.raises(RefusedError, match=r"device has changed since this run began \(cpu then, cuda now\)"):
        train(aligned[0])


@GPU
def test_both_halves_learn_on_a_gpu_and_what_they_know_is_kept(aligned):
    on(aligned, "cuda")
    label, features = trained(aligned)
    assert {label.party.device.type, features.party.device.type} == {"cuda"}
    assert label.history
    again = train(aligned[0])  # a run that is over is read back, and every answer is one that was stored
    assert again.history == label.history
