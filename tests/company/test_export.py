"""A run that broke its limit is not let out, unless somebody answers for it, and that stays on record."""

import os
import stat

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from benchmarks._companies import align_rows
from tacit.align.batches import Plan
from tacit.company.export import clear, export
from tacit.company.folder import Folder
from tacit.company.overrides import overrides
from tacit.errors import LimitError, StorageError, UsageError
from tacit.report import seals
from tacit.report.document import Leak, Report, Subject
from tacit.report.rendering import read
from tacit.report.run_files import GATE, OVERRIDES
from tacit.report.seals import write_report
from tacit.serve.halves import load_scorer
from tacit.split.feature_run import build_feature_party
from tacit.split.label_run import build_label_party


def report(limit=0.6, verdict="held", high=0.58, steps=10**6):
    figures = {"attack": "norm", "value": 0.55, "low": 0.52, "high": high}
    return Report(
        made="2026-01-01T00:00:00+00:00", subject=Subject(kind="run", side="features", run="small", steps=steps),
        limit=limit, verdict=verdict, worst=Leak(on="batches", **figures), leaks=(Leak(on="batches", **figures),),
    )  # fmt: skip


def decided(where, limit=0.6, broken=False):
    seals.append(
        where / GATE,
        {"time": "", "epoch": 1, "turn": 0, "decision": "keep", "strength": "", "limit": limit,
         "reason": "", "broken": broken, "worst": None, "foreseen": None},
    )  # fmt: skip


@pytest.fixture(name="parties")
def _parties(companies):
    """Both companies after a training: aligned, with the weights of fresh models."""
    found = []
    for company in companies:
        folder = Folder(company.path)
        where = folder.run_folder(folder.contract)
        rows = align_rows(folder, np.arange(60), id="00", seed=1, digest="00")
        plan = Plan(60, folder.contract.batch_size, folder.contract.epochs, 1, folder.contract.test_share)
        label = folder.config.role == "label"
        model = (
            build_label_party(folder, rows, plan)[0].top if label else build_feature_party(folder, rows, plan)[0].bottom
        )
        save_file(
            {name: torch.full_like(value, 0.5) for name, value in model.state_dict().items()},
            where / "model.safetensors",
        )
        for name in (GATE, OVERRIDES):
            seals.begin(where / name)
        found.append((folder.path, where))
    return found


def test_without_a_limit_nothing_stands_in_the_way(parties, tmp_path):
    path, _ = parties[0]
    assert clear(path, "export") is None
    out = export(path, tmp_path / "out" / "top.safetensors")
    with safe_open(out, "pt") as file:
        assert file.metadata()["tacit_verdict"] == "no limit"
        assert all(bool((file.get_tensor(name) == 0.5).all()) for name in file.keys())  # noqa: SIM118


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_what_is_let_out_is_its_owners_alone(parties, tmp_path, mask):
    out = tmp_path / "top.safetensors"
    (tmp_path / "top.safetensors.part").touch(0o644)  # of an export that was cut short
    before = os.umask(mask)
    try:
        export(parties[0][0], out)
    finally:
        os.umask(before)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_limit_that_held_is_let_out_with_its_verdict(parties, tmp_path):
    path, where = parties[0]
    decided(where)
    write_report(report(), where)
    with safe_open(export(path, tmp_path / "top.safetensors"), "pt") as file:
        about = file.metadata()
    assert (about["tacit_limit"], about["tacit_verdict"], about["tacit_party"]) == ("0.6", "held", "airline")
    with pytest.raises(UsageError, match="is there already"):
        export(path, tmp_path / "top.safetensors")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (None, "no report says"),
        (report(verdict="broken", high=0.7), "is broken"),
        (report(verdict="not judged"), "is not judged"),
        (report(limit=None, verdict="no limit"), "judges another one"),
        (report(limit=0.8), "judges another one"),
        (report(steps=1), "about 1 of"),
    ],
    ids=["unjudged", "broken", "half", "limit removed", "limit raised later", "made while the training ran"],
)
def test_a_run_is_refused_unless_its_own_limit_was_held(parties, tmp_path, written, words):
    path, where = parties[0]
    decided(where)
    if written is not None:
        write_report(written, where)
    for let_out in (lambda: export(path, tmp_path / "top.safetensors"), lambda: load_scorer(path, "serving")):
        with pytest.raises(LimitError, match=words):
            let_out()
    assert not (tmp_path / "top.safetensors").exists()
    assert overrides(where) == ()


def test_an_override_has_a_name_and_a_reason_and_stays_on_record(parties, tmp_path):
    path, where = parties[0]
    decided(where, broken=True)
    write_report(report(verdict="broken", high=0.7), where)
    for name, reason in (("Ada", None), ("Ada", " "), (" ", "because")):
        with pytest.raises(UsageError, match="a name and a reason"):
            export(path, tmp_path / "top.safetensors", override=name, reason=reason)
    export(path, tmp_path / "top.safetensors", override="Ada", reason="test data only")
    clear(path, "serving", override="Ben", reason="a trial")
    assert [(one.who, one.what) for one in overrides(where)] == [
        ("Ada", "export to top.safetensors"),
        ("Ben", "serving"),
    ]
    assert read(where / "report.json").overrides == overrides(where)
    assert "test data only" in (where / "report.html").read_text()
    record = where / OVERRIDES
    record.write_bytes(record.read_bytes().replace(b"Ada", b"Eve"))
    with pytest.raises(StorageError, match="line 1"):
        overrides(where)
