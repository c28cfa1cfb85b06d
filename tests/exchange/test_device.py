"""Networks learn on a GPU what they learn on the CPU, about as two seeds do; what is sent is computed on the CPU.

On a machine with a GPU: pytest tests/exchange/test_device.py
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from tacit.align.encoder import Inputs
from tacit.errors import UsageError
from tacit.exchange import _batches
from tacit.exchange._batches import MOST_STEPS, ahead, drawn, placed, rows_a_step
from tacit.exchange.common import check_at_home
from tacit.exchange.head import fit_head
from tacit.exchange.learn import load_bottom
from tacit.exchange.learn.network import network
from tacit.exchange.pretrain import MOST_CODES, _masked_loss, pretrain

CPU = torch.device("cpu")
on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


# --- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("usual", [32, 512, 1024])
def test_batches_grow_only_where_an_epoch_would_have_too_many_steps(usual):
    assert rows_a_step(usual * MOST_STEPS, usual) == usual
    for rows in (usual * MOST_STEPS + 1, 45_000_000, 10**9):
        size = rows_a_step(rows, usual)
        assert size >= usual
        assert math.ceil(rows / size) <= MOST_STEPS < math.ceil(rows / (size - 1))


@pytest.mark.parametrize("size", [1, 7, 64, 500])
def test_rows_that_come_in_blocks_are_the_rows_of_the_plan(monkeypatch, seeded, size):
    monkeypatch.setattr(_batches, "_AHEAD", 50)
    tensors = [torch.arange(300), torch.randn(300, 4, generator=seeded(0)), torch.zeros(300, 0)]
    plan = torch.randperm(300, generator=seeded(1)).split(size)
    found = list(ahead(tensors, plan, CPU))
    assert len(found) == len(plan)
    for batch, rows in zip(found, plan, strict=True):
        assert all(torch.equal(part, tensor[rows]) for part, tensor in zip(batch, tensors, strict=True))
    assert [len(batch[0]) for batch in drawn(tensors, plan, CPU)] == [len(rows) for rows in plan]


def test_on_the_cpu_rows_stay_where_they_are(made_up):
    assert all(a is b for a, b in zip(placed(made_up.inputs.tensors, CPU), made_up.inputs.tensors, strict=True))


def test_a_column_of_many_codes_is_predicted_by_remainders():
    rows = Inputs(torch.arange(3000)[:, None], torch.zeros(3000, 0), (3000,))
    equal = partial(torch.zeros, 3000, MOST_CODES)
    loss = _masked_loss([MOST_CODES, 0], lambda *_: equal(), list(rows.tensors))
    assert loss.item() == pytest.approx(math.log(MOST_CODES))
    trunk = pretrain(rows, epochs=1)
    assert all(bool(weight.isfinite().all()) for weight in trunk.parameters())


# --- which device ----------------------------------------------------------------------------------------------------


def test_without_a_gpu_auto_is_the_cpu_bit_for_bit(monkeypatch, made_up):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    asked = (made_up.inputs, made_up.sent[:600], made_up.coin, 2)
    learner = network(epochs=2, members=1)
    auto, cpu = (replace(learner, device=name).fit(*asked, seed=1) for name in ("auto", "cpu"))
    assert auto.digest == cpu.digest == learner.fit(*asked, seed=1).digest
    ranks = made_up.sent[:600, None]
    heads = [fit_head("network", ranks, None, made_up.labels[:600], device=name) for name in ("auto", "cpu")]
    assert np.array_equal(*(head.predict(ranks, None) for head in heads))


def test_a_device_that_is_not_there_is_told_before_anything_is_asked_for(monkeypatch, companies):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("airline", "airport"):
        companies.set(name, columns='label = "late"' if name == "airline" else 'numeric = ["wind"]')
        settings = companies.path / name / "party.toml"
        settings.write_text(settings.read_text().replace("threads = 1", 'device = "cuda"'))
        with pytest.raises(UsageError, match=r"party.toml: \[training\] device: torch sees no CUDA"):
            check_at_home(companies.folder(name))
    with pytest.raises(UsageError, match="no device 'tpu'"):
        fit_head("network", np.zeros((4, 1), np.uint8), None, np.zeros(4), device="tpu")


# --- on a GPU --------------------------------------------------------------------------------------------------------


def fitted(made_up, device):
    learner = replace(network(epochs=8, members=2), device=device)
    return learner.fit(made_up.inputs, made_up.sent[: made_up.train], made_up.coin, 3, seed=1)


def score_auc(made_up, bottom):
    return roc_auc_score(made_up.labels[made_up.train :], bottom.embed(made_up.inputs)[made_up.train :, 0])


@on_cuda
@pytest.mark.parametrize("room", [True, False])
def test_a_gpu_learns_as_well_as_the_cpu(monkeypatch, made_up, tmp_path, room):
    if not room:  # rows come in blocks
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (0, 0))
        monkeypatch.setattr(_batches, "_AHEAD", 200)
    there, here = fitted(made_up, "cuda"), fitted(made_up, "cpu")
    assert {weight.device.type for weight in there.trunk.parameters()} == {"cpu"}
    assert score_auc(made_up, there) == pytest.approx(score_auc(made_up, here), abs=0.02)
    scores = np.stack([bottom.embed(made_up.inputs)[:, 0] for bottom in (there, here)])
    assert np.corrcoef(scores)[0, 1] > 0.97
    there.save(tmp_path)
    assert np.array_equal(load_bottom(tmp_path).embed(made_up.inputs), there.embed(made_up.inputs))


@on_cuda
def test_rows_lie_on_the_gpu_and_codes_take_half(made_up):
    cuda = torch.device("cuda", 0)
    codes, numbers = placed(made_up.inputs.tensors, cuda)
    assert (codes.device, codes.dtype, numbers.dtype) == (cuda, torch.int32, torch.float32)
    plan = torch.randperm(3000, device=cuda).split(1000)
    for rows, batch in zip(plan, drawn([codes, numbers], plan, cuda), strict=True):
        for part, tensor in zip(batch, made_up.inputs.tensors, strict=True):
            assert torch.equal(part.cpu(), tensor[rows.cpu()])


@on_cuda
def test_a_head_on_a_gpu(made_up):
    ranks = (made_up.inputs.numeric.clamp(-2, 2) * 60 + 127).byte().numpy()
    found = [
        fit_head("network", ranks, made_up.inputs, made_up.labels, train=2400, device=device).predict(
            ranks, made_up.inputs
        )[2400:]
        for device in ("cuda", "cpu")
    ]
    aucs = [roc_auc_score(made_up.labels[2400:], each) for each in found]
    assert aucs[0] == pytest.approx(aucs[1], abs=0.02)
