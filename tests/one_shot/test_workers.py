"""Learning at home on several processes: what one learns, up to rounding; the first alone meets the partner."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from tacit.company.align import aligned
from tacit.company.one_shot_common import own_inputs
from tacit.company.one_shot_workers import _table, check_several
from tacit.company.train import train, train_one_shot
from tacit.errors import DataError, StorageError, UsageError
from tacit.one_shot.flips import flips
from tacit.one_shot.learn.network import network
from tacit.one_shot.learn.trees import trees
from tacit.one_shot.workers import Workers

from .companies import Companies, table

HERE = Path(__file__).parent
NETWORK = '[learn]\nlearner = "network"\nfloor = false\n'
COLUMNS = 'categorical = ["port"], numeric = ["wind", "rain"]'


def torchrun(count, *arguments, where=("--standalone",), **more):
    """Processes as a user starts them."""
    command = [sys.executable, "-m", "torch.distributed.run", *where, "--nproc-per-node", str(count)]
    return subprocess.Popen(
        [*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more
    )


def ended(process, patience=300):
    """What it said, however it ended."""
    try:
        return process.communicate(timeout=patience)[0]
    finally:
        process.kill()


# --- shares of batches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_shares_are_the_batch_and_weigh_what_they_have(count):
    for batch in range(1, 40):
        values = torch.randn(batch, generator=torch.Generator().manual_seed(batch)).double()
        shares = [Workers(rank, count, count).share(batch) for rank in range(count)]
        seen = [row for share in shares if share.weight for row in range(batch)[share.rows]]
        assert sorted(seen) == list(range(batch))
        mean = sum(values[share.rows].mean() * share.weight for share in shares) / count
        assert mean == pytest.approx(values.mean().item())


def test_one_process_asks_nobody():
    alone = Workers.started()
    assert (alone.rank, alone.count) == (0, 1)
    assert alone.same({"a": 1}) == {"a": 1}
    assert alone.mean(0.25, 3) == 0.25


# --- what is learnt --------------------------------------------------------------------------------------------------


@pytest.fixture(name="learnt", scope="module")
def _learnt(tmp_path_factory):
    """What one, two and four processes learn from the same rows."""
    path, found = tmp_path_factory.mktemp("learnt"), {}
    for count in (1, 2, 4):
        out = path / f"{count}.npz"
        process = torchrun(count, HERE / "learning_together.py", out, 3000)
        said = ended(process)
        assert process.returncode == 0, said
        found[count] = dict(np.load(out))
    return found


@pytest.mark.parametrize("count", [2, 4])
def test_a_first_epoch_differs_by_rounding_alone(learnt, count):
    for name, value in learnt[1].items():
        if name.startswith("trunk") or name == "begun":
            np.testing.assert_allclose(
                learnt[count][name], value, rtol=0, atol=1e-4 * np.abs(value).max(), err_msg=name
            )


@pytest.mark.parametrize("count", [2, 4])
def test_the_end_has_the_same_figures(learnt, count):
    test = slice(2400, None)
    one, several = learnt[1], learnt[count]
    auc = [roc_auc_score(each["labels"][test], each["ended"][test, 0]) for each in (one, several)]
    assert auc[0] == pytest.approx(auc[1], abs=0.002)
    assert np.corrcoef(one["ended"][:, 0], several["ended"][:, 0])[0, 1] > 0.999


def test_two_machines_learn_the_same_as_two_processes_of_one(learnt, tmp_path):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    where = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "x")
    asked = (1, HERE / "learning_together.py", tmp_path / "out.npz", 3000)
    machines = [torchrun(*asked, where=where, env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}) for _ in range(2)]
    said = [ended(process) for process in machines]
    assert [process.returncode for process in machines] == [0, 0], said
    assert np.array_equal(np.load(tmp_path / "out.npz")["ended"], learnt[2]["ended"])


# --- killed ----------------------------------------------------------------------------------------------------------


class KilledError(Exception):
    """As good as a kill: nothing after it is done."""


@pytest.mark.parametrize("at", [1, 3, 8, 12])
def test_one_that_is_killed_goes_on_to_the_same_bytes(made_up, tmp_path, at):
    asked = (made_up.inputs, made_up.sent[:600], made_up.coin, 2)
    learner = network(epochs=4, members=2)
    whole = learner.fit(*asked, seed=1)
    told = []

    def killed(*words):
        told.append(words)
        if len(told) == at:
            raise KilledError

    with pytest.raises(KilledError):
        replace(learner, workers=Workers(keep=tmp_path)).fit(*asked, seed=1, progress=killed)
    begun = len(told)
    assert (
        replace(learner, workers=Workers(keep=tmp_path))
        .fit(*asked, seed=1, progress=lambda *words: told.append(words))
        .digest
        == whole.digest
    )
    assert len(told) - begun <= 18 - at, "what was done is not done again"


def test_a_damaged_file_is_told_and_not_begun_anew(made_up, tmp_path):
    learner = replace(network(epochs=2, members=1), workers=Workers(keep=tmp_path))
    learner.fit(made_up.inputs, made_up.sent[:600], made_up.coin, 2)
    file = tmp_path / "600 labels" / "network 0.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StorageError, match="network 0"):
        learner.fit(made_up.inputs, made_up.sent[:600], made_up.coin, 2)


# --- a party ---------------------------------------------------------------------------------------------------------


@pytest.fixture(name="ready", scope="module")
def _ready(tmp_path_factory):
    """Two companies that are about to train."""
    companies = Companies(tmp_path_factory.mktemp("ready"), table())
    companies.set("airport", columns=COLUMNS, more=NETWORK)
    companies.align()
    return companies


def copied(ready, path, monkeypatch):
    """The same companies, secrets included, in another place, with counts of their own."""
    copy = object.__new__(Companies)
    copy.path, copy.port, copy.parties = path, ready.port, ready.parties
    for name in ("airline", "airport"):
        shutil.copytree(ready.path / name, path / name)
    monkeypatch.setenv("TACIT_STATE", str(path / "state"))
    return copy


def trained(companies, count, *more, options=()):
    """Both parties, the airport with so many processes; what the airline found, and what the airport's said."""
    notes = companies.path / "notes"
    notes.mkdir()
    process = torchrun(count, *options, HERE / "one_of_several.py", companies.path / "airport", notes, *more)

    def gone(*_):
        assert process.poll() in (None, 0), process.stdout.read()

    try:
        airline = train_one_shot(companies.folder("airline"), waiting=gone)
    finally:
        with process:
            said = ended(process) if process.poll() is None else process.stdout.read()
    assert process.returncode == 0, said
    return airline, {file.name: file.read_text().splitlines() for file in notes.iterdir()}


@pytest.fixture(name="single", scope="module")
def _single(ready, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        companies = copied(ready, tmp_path_factory.mktemp("single"), patched)
        return companies, trained(companies, 1)[0]


def sent(companies):
    return np.load(companies.run("airport") / "release" / "codes.npy").astype(int)


def test_several_processes_of_a_party_send_what_one_sends(ready, single, tmp_path, monkeypatch):
    companies = copied(ready, tmp_path, monkeypatch)
    airline, notes = trained(companies, 2)
    assert airline.figures["test_auc"] == pytest.approx(single[1].figures["test_auc"], abs=0.005)
    assert np.abs(sent(companies) - sent(single[0]))[:, 0].mean() < 2, "of 256 ranks"
    release = [
        json.loads((each.run("airport") / "release" / "release.json").read_bytes()) for each in (single[0], companies)
    ]
    assert release[0]["form"] == release[1]["form"]
    assert release[0]["audit"]["worst"] == pytest.approx(release[1]["audit"]["worst"], abs=0.05)
    assert "process 1 life 0" not in notes, "the other one wrote, or connected"
    assert not (companies.run("airport") / "learning").exists()
    started = [event for event in _log(companies) if event["event"] == "left"]
    assert [event["what"] for event in started] == ["embedding"]


def _log(companies):
    return [json.loads(line) for line in (companies.run("airport") / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("killed", [0, 1])
def test_whoever_is_killed_torchrun_goes_on_from_the_last_epoch(ready, single, tmp_path, monkeypatch, killed):
    companies = copied(ready, tmp_path, monkeypatch)
    airline, notes = trained(companies, 2, killed, options=("--max-restarts", "1"))
    before, after = notes["process 0 life 0"], notes["process 0 life 1"]
    assert any(line.startswith("learning without labels 6") for line in before)
    assert not any(line.startswith("learning without labels") for line in after), "that was done"
    assert airline.figures["test_auc"] == pytest.approx(single[1].figures["test_auc"], abs=0.005)
    assert "process 1 life 1" not in notes


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_what_one_process_alone_can_do_is_refused_before_anything_is_asked_for(ready, tmp_path, monkeypatch):
    companies = copied(ready, tmp_path, monkeypatch)
    several = Workers(0, 2, 2)
    check_several(companies.folder("airport"), several)
    with pytest.raises(UsageError, match="without torchrun"):
        check_several(companies.folder("airline"), several)
    companies.set("airport", columns=COLUMNS, more='[learn]\nlearner = "trees"\n')
    with pytest.raises(UsageError, match=r"the learner 'trees' takes one"):
        check_several(companies.folder("airport"), several)
    check_several(companies.folder("airport"), Workers())


def test_split_training_takes_one_process(ready, monkeypatch):
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=r"with mode = .split."):
        train(ready.folder("airport"))


def test_more_processes_than_rows_can_be_shared_out_to():
    Workers(0, 4, 4).check(40)
    with pytest.raises(UsageError, match="39 rows are too few for 4 processes: start at most 3"):
        Workers(0, 4, 4).check(39)


def test_pictures_are_for_one_process():
    learner = replace(network(), workers=Workers(1, 2, 2))
    with pytest.raises(UsageError, match="not from pictures"):
        learner.fit(torch.zeros(20, 1, 8, 8), np.zeros(20, np.uint8), flips(0.6), 1)


def test_a_process_without_the_table_or_with_another_one_says_who_it_is(ready, tmp_path, monkeypatch):
    companies = copied(ready, tmp_path / "copy", monkeypatch)
    airport = companies.folder("airport")
    own_inputs(airport, aligned(airport))
    path, other = companies.run("airport") / "inputs", Workers(1, 2, 1)
    digest = json.loads((path / "manifest.json").read_bytes())["digest"]
    assert len(_table(path, digest, other)) == 1500
    with pytest.raises(DataError, match=r"process 1 of 2 on .* holds another table"):
        _table(path, "00", other)
    with pytest.raises(DataError, match=r"process 1 of 2 on .* holds no encoded table"):
        _table(tmp_path, digest, other)
    shutil.copytree(path, tmp_path / "inputs")
    with (tmp_path / "inputs" / "numeric.bin").open("r+b") as file:
        file.write(b"\1")
    with pytest.raises(DataError, match="no whole one"):
        _table(tmp_path / "inputs", digest, other)


def test_torchrun_with_trees_ends_with_the_reason(ready, tmp_path, monkeypatch):
    companies = copied(ready, tmp_path, monkeypatch)
    companies.set("airport", columns=COLUMNS)
    process = torchrun(2, "-m", "tacit", "train", "--folder", companies.path / "airport", env={**os.environ})
    said = ended(process)
    assert process.returncode, said
    assert "the learner 'trees' takes one" in said
    assert not (companies.run("airport") / "flips").exists()


# --- a sample --------------------------------------------------------------------------------------------------------


def test_trees_learn_from_a_sample_of_the_rows(made_up):
    asked = (made_up.inputs, made_up.sent[:2400], made_up.coin, 1)
    whole, some = (trees(rounds=20, sample=sample).fit(*asked, seed=1) for sample in (2400, 1200))
    assert whole.digest == trees(rounds=20).fit(*asked, seed=1).digest != some.digest
    assert roc_auc_score(made_up.labels[2400:], some.embed(made_up.inputs[2400:])[:, 0]) > 0.7
    with pytest.raises(UsageError, match="sample must be at least 1"):
        trees(sample=0)
