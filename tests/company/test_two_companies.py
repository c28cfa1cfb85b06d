"""The whole way, as two companies go it: two processes, mutual TLS, journals, the command line."""

import contextlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

from tacit.cli import main
from tacit.company.agreed import agree
from tacit.company.folder import Folder
from tacit.lab.two_companies import Company, meet, prepare, together

# The command line with a hook that ends the process when anything is unpickled.
NO_PICKLE = """
import os, sys
import tacit.split.train  # what loading our libraries does is not the question

def hook(event, arguments):
    if event == "pickle.find_class":
        os.write(2, f"unpickled: {arguments}".encode())
        os._exit(9)

sys.addaudithook(hook)
from tacit.cli import main
main()
"""


def tacit(*words):
    """A command that needs nobody else, in this process: its exit code, and what it writes."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["tacit", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return SimpleNamespace(returncode=ended.value.code or 0, stdout=out.getvalue(), stderr=err.getvalue())


def narrow(*companies):
    """Let them agree on a cut of 16 instead of 128."""
    for company in companies:
        contract = company.folder / "contract.toml"
        contract.write_text(contract.read_text().replace("airport = 128", "airport = 16"))
        agree(Folder(company.folder))


FAR = ("state", "turn", "turns", "epoch", "epochs", "history")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Both after what `tacit demo` lets them do, smaller: fewer flights, a narrow cut, a limit that is easily held."""
    out = tmp_path_factory.mktemp("companies")
    airline, airport = prepare(out, epochs=2, rows=2500, seed=0, limit=0.8)
    narrow(airline, airport)
    settings = airport.folder / "party.toml"  # the airport's decoders learn from one batch
    settings.write_text(settings.read_text().replace("[network]", "record = { last = 1, follow = 100 }\n[network]"))
    told = meet(airline, airport, progress=lambda *_: None)
    return out, json.loads(json.dumps(told))


def test_the_demo_aligns_trains_and_audits(demo):
    _, told = demo
    assert told["airline_rows"] > told["common"] < told["airport_rows"]
    assert [line["epoch"] for line in told["history"]] == [0, 1]
    assert {"test_auc", "test_loss", "train_loss"} <= set(told["history"][0])
    assert told["worst"]["value"] <= max(one["value"] for one in told["attacks"])
    assert {"norm", "residual", "likelihood", "accumulated(norm)"} <= {one["attack"] for one in told["attacks"]}


def test_each_company_keeps_its_own(demo):
    out, _ = demo
    for name, other in (("airline", "airport"), ("airport", "airline")):
        folder = out / name
        assert {path.name for path in folder.glob("**/*.crt")} == {f"{name}.crt", f"{other}.crt"}
        assert list(folder.glob("runs/flights/journal/journal-*.log"))
        for private in (folder / "keys").iterdir():
            assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert "late" not in (out / "airport" / "party.toml").read_text()
    secret = (out / "airline" / "keys" / "secret").read_bytes()
    written = [path for path in (out / "airline" / "runs").glob("**/*") if path.is_file()]
    assert len(written) > 5
    assert not any(secret in path.read_bytes() for path in written)


def test_shared_figures_are_all_that_the_airport_knows(demo):
    """And the contract shares none."""
    out, _ = demo
    status = json.loads((out / "airport" / "runs" / "flights" / "status.json").read_text())
    assert status["history"] == [{"epoch": 0}, {"epoch": 1}]
    report = json.loads((out / "airport" / "runs" / "flights" / "report.json").read_text())
    attacks = {one["attack"]: one for one in report["leaks"]}
    assert set(attacks) == {"linear_decoder", "decoder", "accumulated(linear_decoder)"}, "of its own columns alone"
    assert {one["measure"] for one in attacks.values()} == {"variance_read"}
    assert report["worst"]["attack"] == max(attacks, key=lambda name: attacks[name]["value"])
    assert report["subject"]["party"] == "airport"


def test_the_airline_has_a_report_and_a_limit_that_is_judged(demo):
    out, told = demo
    report = json.loads((out / "airline" / "runs" / "flights" / "report.json").read_text())
    assert (report["limit"], report["verdict"], report["worst"]) == (0.8, told["verdict"], told["worst"])
    assert {one["epoch"] for one in report["decisions"]} == {1, 2}
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    exported = tacit("export", "--folder", str(out / "airline"), "--out", str(out / "top.safetensors"))
    assert (exported.returncode == 0) == (report["verdict"] == "held"), exported.stderr


def test_status_tells_the_end(demo):
    out, _ = demo
    done = tacit("status", "--folder", str(out / "airline"))
    assert done.returncode == 0
    assert "flights (airline, label): finished" in done.stdout
    assert "(100%)" in done.stdout
    assert json.loads(tacit("status", "--json", "--folder", str(out / "airport")).stdout)[0]["state"] == "finished"


def test_a_finished_run_is_not_trained_or_aligned_again(demo):
    out, _ = demo
    before = (out / "airline" / "runs" / "flights" / "model.safetensors").read_bytes()
    stood = json.loads((out / "airline" / "runs" / "flights" / "status.json").read_text())
    done = tacit("train", "--no-audit", "--folder", str(out / "airline"))
    assert done.returncode == 0, done.stderr
    assert (out / "airline" / "runs" / "flights" / "model.safetensors").read_bytes() == before
    stands = json.loads((out / "airline" / "runs" / "flights" / "status.json").read_text())
    assert {name: stands.get(name) for name in FAR} == {name: stood[name] for name in FAR}
    assert tacit("align", "--folder", str(out / "airline")).returncode == 0
    again = tacit("align", "--again", "--folder", str(out / "airline"))
    assert again.returncode == 2
    assert "has begun" in again.stderr


def test_killed_and_started_again_it_goes_on(tmp_path):
    airline, airport = prepare(tmp_path, epochs=6, rows=2000, seed=0, limit=None)  # some 90 turns
    narrow(airline, airport)
    for company in (airline, airport):
        settings = company.folder / "party.toml"
        settings.write_text(settings.read_text().replace("[training]\n", "[training]\ncheckpoint_every = 10\n"))
    aligning = [company.start("align", "--json") for company in (airline, airport)]
    assert [process.wait(120) for process in aligning] == [0, 0]
    [process.communicate() for process in aligning]
    feature = airport.start("train", "--json", "--no-audit")
    label = airline.start("train", "--json", "--no-audit")
    _wait_for(airline.run_folder / "checkpoints" / "checkpoint-000000000010.safetensors")
    os.kill(label.pid, signal.SIGKILL)
    label.communicate()
    assert "resumes" in tacit("status", "--folder", str(airline.folder)).stdout
    label = subprocess.Popen(
        [sys.executable, "-c", NO_PICKLE, "train", "--json", "--no-audit", "--folder", str(airline.folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert (label.wait(120), feature.wait(120)) == (0, 0), label.communicate()[1]
    [process.communicate() for process in (label, feature)]
    status = airline.read("status.json")
    assert status["state"] == "finished"
    connected = [json.loads(line) for line in (airline.run_folder / "log.jsonl").read_text().splitlines()]
    assert [event["event"] for event in connected].count("connected") == 2
    weights = load_file(airline.run_folder / "model.safetensors")
    assert all(torch.isfinite(value).all() for value in weights.values())


def _wait_for(path, patience=60):
    end = time.monotonic() + patience
    while not path.exists():
        assert time.monotonic() < end, "the training does not get on"
        time.sleep(0.005)


def test_a_contract_that_differs_is_refused_with_its_name(tmp_path):
    airline, airport = prepare(tmp_path, epochs=2, rows=1000, seed=0)
    contract = airport.folder / "contract.toml"
    assert "epochs = 2" in contract.read_text()
    contract.write_text(contract.read_text().replace("epochs = 2", "epochs = 3"))
    agree(Folder(airport.folder))  # each owner says yes to a file of its own
    label = airline.start("align")
    feature = airport.start("align")
    said = feature.communicate(timeout=60)[1]
    assert feature.returncode == 3
    assert "contract.toml differs between" in said
    assert " in epochs: it must be the same file on all sides" in said
    assert "tacit contract" in said
    assert label.poll() is None  # it goes on waiting for one that means the same
    label.kill()
    assert "refused: airport, about 'contract'" in label.communicate()[1]


def test_nothing_aligned_yet(tmp_path):
    airline, _ = prepare(tmp_path, epochs=1, rows=1000, seed=0)
    done = tacit("train", "--folder", str(airline.folder))
    assert done.returncode == 2
    assert "run `tacit align` on all sides" in done.stderr
    assert Folder(airline.folder).config.role == "label"


def test_an_answer_that_is_longer_than_a_pipe_is_heard(tmp_path, monkeypatch):
    say = "print('{\"said\": \"' + 200_000 * 'x' + '\"}')"

    def start(*_):
        command = [sys.executable, "-c", say]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    monkeypatch.setattr(Company, "start", start)
    assert len(together([Company(tmp_path)] * 2, "train", lambda: None)["said"]) == 200_000
