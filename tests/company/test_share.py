"""What the contract may share, and what a feature party can read in it that sends whatever it likes."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
import torch

from benchmarks._companies import align_rows
from tacit.audit.metrics.leak_auc import auc
from tacit.company.folder import Folder
from tacit.config import Contract, contract_template
from tacit.errors import UsageError
from tacit.split.feature_party import FeatureParty
from tacit.split.label_run import LEAST
from tacit.split.session import DIGITS
from tacit.split.train import train

ROWS, TESTED, EPOCHS = 2000, 1000, 12
CONTRACT = f"""
run = "small"
label_party = "airline"
feature_parties = ["airport"]
loss = "binary"
epochs = {EPOCHS}
batch_size = 500
test_share = 0.5
alignment.smallest_set = 10
cut.widths.airport = 4
minimum.gradient.name = "none"
"""


class Oracle(torch.nn.Module):
    """A bottom that sends the same embedding for all test rows but one, another one after each epoch."""

    def __init__(self, targets):
        super().__init__()
        self.layer = torch.nn.Linear(1, 4)
        self.targets = list(targets)
        self.epoch = -1

    def forward(self, ids):
        if self.training:
            return self.layer(ids / ROWS)
        self.epoch += int(ids[0] == ROWS - TESTED)
        return torch.where(ids == self.targets[self.epoch], 50.0, 0.0).expand(-1, 4).contiguous()


@pytest.fixture(name="ask")
def _ask(companies):
    """Lets the two train under a contract, the airport with an oracle for a bottom; what it was told, and the truth."""

    def ask(share="", positives=0.3):
        truth = (np.random.default_rng(3).permutation(ROWS) < positives * ROWS).astype(int)
        for company in companies:
            (company.path / "contract.toml").write_text(CONTRACT + share)
            settings = company.path / "party.toml"
            text = settings.read_text().replace("training.threads = 1", "training = { threads = 1, seed = 1 }")
            assert "seed = 1" in text  # some tops are blind to the row that stands out
            settings.write_text(text)
            pl.DataFrame({"id": np.arange(ROWS), "x": np.arange(ROWS) * 1.0, "y": truth}).write_parquet(
                company.path / "data.parquet"
            )
            folder = Folder(company.path)
            align_rows(folder, np.arange(ROWS), id="00", seed=1, digest="00")
        targets = ROWS - TESTED + np.random.default_rng(4).permutation(TESTED)[:EPOCHS]
        bottom = Oracle(targets)
        ids = torch.arange(ROWS, dtype=torch.float32)[:, None]
        party = FeatureParty(
            bottom=bottom, features=ids, optimizer=torch.optim.SGD(bottom.parameters(), lr=0.01), protect=[]
        )
        with ThreadPoolExecutor(2) as pool:
            airline = pool.submit(train, companies[0].path)
            told = pool.submit(train, companies[1].path, party).result(timeout=100).history
            airline.result(timeout=100)
        return [line.get("test_auc") for line in told], truth[targets]

    return ask


def read_off(told):
    """The labels of the rows that stood out: the rarer class moves the figure further away from a half."""
    far = np.abs(np.array(told) - 0.5)
    return (far > (far.min() + far.max()) / 2).astype(int)


def test_without_a_word_in_the_contract_nothing_is_told(ask):
    assert Contract.read(contract_template()).share.metrics == ()
    told, _ = ask()
    assert told == [None] * EPOCHS


def test_a_shared_figure_does_not_tell_the_label_of_a_row_that_stands_out(ask, companies):
    """To four digits, as it once was, it told all twelve; to two it says a half, twelve times."""
    told, truth = ask('share.metrics = ["test_auc"]')
    assert 0 < truth.sum() < EPOCHS
    history = json.loads((companies[0].path / "runs" / "small" / "status.json").read_text())["history"]
    exact = [line["test_auc"] for line in history]
    assert (read_off([round(one, 4) for one in exact]) == truth).all()
    assert told == [0.5] * EPOCHS
    assert told == [round(one, DIGITS) for one in exact]


@pytest.mark.parametrize("positives", [0.05, 0.001])
def test_figures_over_few_rows_of_a_class_are_told_as_if_undefined(ask, companies, positives):
    """Whether the training begins would tell which rows there are, and so would any figure."""
    told, _ = ask('share.metrics = ["test_auc"]', positives=positives)
    assert told == [0.5] * EPOCHS


@pytest.mark.parametrize("line", ['metrics = ["train_loss"]', 'metrics = ["test_loss"]', "digits = 4"])
def test_the_loss_of_a_single_batch_is_not_shared(line):
    """Nor any other loss, which one row can move as far as its sender likes, nor more digits."""
    with pytest.raises(UsageError, match=r"\[share\]"):
        Contract.read(f"{CONTRACT}[share]\n{line}")


def test_two_digits_bound_what_one_row_does_and_do_not_hide_who_sits_at_an_edge():
    """One row moves the figure by one step at most; a sender who has found where a step lies still reads its label."""
    labels = (torch.arange(2 * LEAST) < LEAST).float()
    order = torch.Generator().manual_seed(0)
    shown, most = {0: set(), 1: set()}, 0.0
    for moved in range(1, LEAST):  # this many positives lie above all negatives, the others below: an AUC of any value
        base = torch.where(labels == 1, torch.where(torch.arange(2 * LEAST) < moved, 2.0, -2.0), 0.0)
        for row in torch.randperm(2 * LEAST, generator=order)[:8].tolist():
            low, high = base.clone(), base.clone()
            low[row], high[row] = -3.0, 3.0
            step = float(auc(high, labels)) - float(auc(low, labels))
            most = max(most, abs(step))
            told = round(float(auc(high, labels)), DIGITS) - round(float(auc(low, labels)), DIGITS)
            shown[int(labels[row])].add(round(told, DIGITS))
    assert most == pytest.approx(0.5 * 10**-DIGITS)
    assert shown == {0: {0.0, -0.01}, 1: {0.0, 0.01}}, "most often nothing; at an edge, the label"
