"""Generated tables: shares, frequencies and days as asked, something to learn, and no library beside torch."""

import subprocess
import sys

import pytest
import torch

from benchmarks import _official_files
from tacit.audit.metrics.leak_auc import auc
from tacit.errors import UsageError
from tacit.lab.data import criteo, generated


def test_the_same_seed_gives_the_same_rows_and_another_one_others():
    one, again, other = (generated.table(2000, (50, 9), 3, 0.3, seed) for seed in (1, 1, 2))
    for name in ("train", "test"):
        for x, y in zip(getattr(one, name).features, getattr(again, name).features, strict=True):
            assert torch.equal(x, y)
    assert not torch.equal(one.train.features[0], other.train.features[0])
    assert not torch.equal(one.train.features[1][:200], one.test.features[1])


@pytest.mark.parametrize(
    ("name", "positive", "codes", "numbers"),
    [
        ("criteo", 434, [3.5945, 3.0760, 5.8736, 5.7715, 2.7696, 1.4590], [0.15313, 0.15288, 0.16103, 0.16052]),
        ("avazu", 321, [1.3114, 0.7996, 0.7960, 4.0262, 4.1932, 1.4206], []),
    ],
)
def test_look_alikes_are_those_that_the_papers_claims_were_judged_on(name, positive, codes, numbers):
    data = generated.like(name, 2000, 0)
    drawn, of = (x.double() for x in data.train.features)
    assert int(data.train.labels.sum()) == pytest.approx(positive, abs=3)  # processors differ in the last bit of exp
    assert drawn.log1p().mean(0)[:6].tolist() == pytest.approx(codes, rel=1e-3)
    assert of.mean(0)[:4].tolist() == pytest.approx(numbers, rel=1e-3)


@pytest.mark.parametrize("share", [0.02, 0.256, 0.5])
def test_the_share_of_positives_is_as_asked(share):
    data = generated.table(60_000, (1000, 20, 3), 4, share, seed=0)
    error = 4 * (share * (1 - share) / len(data.train)) ** 0.5  # one false alarm in 16,000 by the draw alone
    assert abs(data.share - share) < error + 0.004  # and the spread of the rows by which the share is set


def test_codes_fall_off_like_zipf_and_stay_below_their_number():
    data = generated.table(200_000, (1000, 1), 0, 0.5, seed=0)
    codes = data.train.features[0]
    assert codes.dtype == torch.int32
    assert codes[:, 1].unique().tolist() == [0]
    counts = torch.bincount(codes[:, 0], minlength=1000).float()
    assert len(counts) == 1000
    wanted = torch.log((torch.arange(1000) + 2) / (torch.arange(1000) + 1)) / torch.log(torch.tensor(1001.0))
    assert ((counts[:50] / len(codes) - wanted[:50]).abs() < 5 * (wanted[:50] / len(codes)).sqrt()).all()


def test_labels_can_be_learnt_from_codes_and_not_from_shuffled_ones():
    data = generated.table(80_000, (30, 20, 10), 2, 0.3, seed=4)
    rates = []
    for rows in (data.train, data.test):
        codes = rows.features[0].long()
        rates.append((codes[:, 0] * 20 + codes[:, 1]) * 10 + codes[:, 2])
    sums = torch.zeros(6000).index_add_(0, rates[0], data.train.labels)
    counts = torch.bincount(rates[0], minlength=6000)
    score = ((sums + 3) / (counts + 10))[rates[1]]
    assert float(auc(score[None], data.test.labels[None])) > 0.65
    shuffled = data.test.labels[torch.randperm(len(score), generator=torch.Generator().manual_seed(0))]
    assert abs(float(auc(score[None], shuffled[None])) - 0.5) < 0.03


def test_days_rise_evenly_and_drift():
    data = generated.like("avazu", 60_000, 0)
    days = data.train.days
    assert (days.diff() >= 0).all()
    counts = torch.bincount(days)
    assert len(counts) == 10
    assert counts.max() - counts.min() <= 1
    heads = [(data.train.features[0][days == day, 4] < 10).float().mean() for day in (0, 9)]
    assert heads[1] - heads[0] > 0.02, "frequencies drift"
    assert abs(data.share - 0.17) < 0.02


def test_criteo_has_the_stated_columns():
    data = generated.like("criteo", 5000, 0)
    assert (len(data.inputs.cardinalities), data.inputs.numeric) == (26, 13)
    assert 990_000 < sum(data.inputs.cardinalities) < 1_010_000
    assert (data.train.features[0] < torch.tensor(data.inputs.cardinalities)).all()
    assert data.train.features[1].min() >= 0
    assert data.train.features[1].max() <= 1


def test_chunks_do_not_show(monkeypatch):
    monkeypatch.setattr(generated, "CHUNK", 700)
    data = generated.table(3000, (5,), 1, 0.4, seed=0, days=3)
    assert torch.bincount(data.train.days).tolist() == [900, 900, 900]


def test_files_are_official_and_packed_if_asked(tmp_path):
    file = _official_files.write("criteo", tmp_path / "train.txt.gz", 600, seed=0)
    data = criteo.load(file)
    assert len(data.train) + len(data.test) == 600
    plain = _official_files.write("criteo", tmp_path, 600, seed=0)
    assert plain.name == "train.txt"
    assert torch.equal(criteo.load(plain).train.features[0], data.train.features[0])
    lines = plain.read_text().splitlines()
    assert {line.count("\t") for line in lines} == {39}
    assert any("\t\t" in line for line in lines)
    assert any("\t-" in line for line in lines), "some numbers are negative"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: generated.table(10, (), 0, 0.5, 0),
        lambda: generated.table(10, (0,), 0, 0.5, 0),
        lambda: generated.table(10, (5,), 0, 1.5, 0),
        lambda: generated.table(3, (5,), 0, 0.5, 0),
        lambda: generated.table(10, (5,), 0, 0.5, 0, days=0),
    ],
)
def test_wrong_use(wrong):
    with pytest.raises(UsageError):
        wrong()


def test_tensors_need_torch_alone():
    code = """
import sys
for name in ("polars", "pydantic", "cryptography", "PIL", "ray"):
    sys.modules[name] = None
from tacit.lab.data import generated
assert len(generated.like('criteo', 1000, 0).train) == 900
"""
    subprocess.run([sys.executable, "-c", code], timeout=300, check=True)
