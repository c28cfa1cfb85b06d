"""What a run's folder says about itself can't be changed by somebody who has no access to the party's secret."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from benchmarks._companies import align_rows
from tacit.company.export import clear, export
from tacit.company.folder import Folder
from tacit.company.overrides import overrides
from tacit.errors import LimitError, StorageError
from tacit.report import seals
from tacit.report.document import Leak, Report, Subject
from tacit.report.rendering import write
from tacit.report.run_files import GATE, OVERRIDES
from tacit.split.gate import decisions

FIGURES = {"attack": "norm", "value": 0.75, "low": 0.72, "high": 0.78}
BROKEN = Report(
    made="2026-01-01T00:00:00+00:00", subject=Subject(kind="run", side="features", run="small", steps=10**6),
    limit=0.6, verdict="broken", worst=Leak(on="batches", **FIGURES), leaks=(Leak(on="batches", **FIGURES),),
)  # fmt: skip
DECIDED = {
    "time": "", "epoch": 1, "turn": 0, "decision": "keep", "strength": "", "limit": 0.6, "reason": "",
    "broken": False, "worst": None, "foreseen": None,
}  # fmt: skip
SAID = {"time": "", "who": "Ada", "what": "export", "reason": "agreed"}


@pytest.fixture(name="run")
def _run(companies):
    """A party's run that is over and has broken its limit of 0.6."""
    folder = Folder(companies[0].path)
    where = folder.run_folder(folder.contract)
    align_rows(folder, np.arange(60), id="00", seed=1, digest="00")
    save_file({"weight": torch.zeros(1)}, where / "model.safetensors")
    for name in (GATE, OVERRIDES):
        seals.begin(where / name)
    for epoch in (1, 2, 3):
        seals.append(where / GATE, {**DECIDED, "epoch": epoch, "broken": epoch == 3})
    seals.write_report(BROKEN, where)
    return where


def rewritten(path, change):
    """A record changed by somebody who knows how it is made and recomputes whatever needs no secret."""
    lines, before = [], "0" * 64
    for line in path.read_bytes().splitlines():
        said = change({name: value for name, value in json.loads(line).items() if name not in ("before", "check")})
        text = json.dumps({**said, "before": before}).encode()
        lines.append(text[:-1] + f', "check": "{hashlib.sha256(text).hexdigest()}"}}'.encode())
        before = hashlib.sha256(lines[-1]).hexdigest()
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def test_a_report_that_was_changed_by_hand_lets_nothing_out(run, tmp_path):
    path = run / "report.json"
    path.write_text(path.read_text().replace('"verdict": "broken"', '"verdict": "held"'))
    with pytest.raises(LimitError, match="not as `tacit audit` wrote it"):
        export(run, tmp_path / "top.safetensors")
    assert not (tmp_path / "top.safetensors").exists()


def test_an_override_does_not_seal_a_report_that_was_changed_by_hand(run, tmp_path):
    """Who answers for a run once does not answer for whatever its report says: it stays as it is, and unsealed."""
    for name in (GATE, f"{GATE}.seal"):
        (run / name).unlink()
    seals.begin(run / GATE)
    seals.append(run / GATE, DECIDED)  # only the audit after the training found what broke the limit
    path = run / "report.json"
    path.write_text(path.read_text().replace('"verdict": "broken"', '"verdict": "held"'))
    forged = path.read_bytes()
    out = export(run, tmp_path / "one.safetensors", override="Ada", reason="agreed")
    with safe_open(out, "pt") as file:
        assert file.metadata()["tacit_verdict"] == "not judged"
    assert [one.who for one in overrides(run)] == ["Ada"]
    assert path.read_bytes() == forged
    with pytest.raises(LimitError, match="not as `tacit audit` wrote it"):
        export(run, tmp_path / "two.safetensors")


def test_a_report_without_a_seal_or_with_that_of_another_run_is_made_again_first(run, tmp_path):
    write(BROKEN.model_copy(update={"verdict": "held"}), run)  # as before there were seals
    with pytest.raises(LimitError, match=r"run `tacit audit .*` again"):
        clear(run, "export")
    (run / "report.json.seal").unlink()
    with pytest.raises(LimitError, match=r"run `tacit audit .*` again"):
        clear(run, "export")
    other = run.parent / "other"
    other.mkdir()
    seals.write_report(BROKEN.model_copy(update={"verdict": "held"}), other)
    for name in ("report.json", "report.json.seal"):
        shutil.copy(other / name, run / name)
    with pytest.raises(LimitError, match=r"run `tacit audit .*` again"):
        clear(run, "export")


def test_what_the_gate_found_broken_stays_so_whatever_a_sealed_report_says(run):
    seals.write_report(BROKEN.model_copy(update={"verdict": "held"}), run)
    with pytest.raises(LimitError, match="while it ran"):
        clear(run, "export")


def test_a_record_with_all_digests_made_anew_is_noticed(run):
    rewritten(run / GATE, lambda said: {**said, "broken": False})
    with pytest.raises(StorageError, match=r"gate\.jsonl, line 1: it is not as it was written"):
        clear(run, "export")
    seals.append(run / OVERRIDES, SAID)
    rewritten(run / OVERRIDES, lambda said: {**said, "who": "Eve"})
    with pytest.raises(StorageError, match=r"overrides\.jsonl, line 1"):
        overrides(run)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_record_whose_end_was_cut_off_is_noticed_also_before_more_is_added(run, left):
    path = run / GATE
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:left]))
    for act in (lambda: decisions(run), lambda: seals.append(path, DECIDED)):
        with pytest.raises(StorageError, match=f"{3 - left} of its 3 lines are missing"):
            act()


def test_a_seal_that_is_gone_or_was_changed_is_noticed(run):
    path = run / GATE
    seal = seals.seal_path(path)
    said = seal.read_text()
    seal.write_text("1" + said[1:])
    with pytest.raises(StorageError, match=r"gate\.jsonl\.seal"):
        decisions(run)
    seal.unlink()
    with pytest.raises(StorageError, match=r"gate\.jsonl\.seal"):
        decisions(run)


def test_a_run_whose_records_are_gone_is_not_let_out_even_if_no_limit_is_set_any_more(run):
    for name in (GATE, "report.json"):
        (run / name).unlink()
        (run / f"{name}.seal").unlink()
    with pytest.raises(LimitError, match=r"gate\.jsonl has no seal"):
        clear(run, "export")


@pytest.mark.parametrize("name", [GATE, OVERRIDES])
def test_killed_between_a_line_and_its_seal_nothing_looks_changed(run, monkeypatch, name):
    """The line is on the disk and counts; the seal, which says how many there are at least, follows with the next."""
    before = len(seals.read(run / name))
    with monkeypatch.context() as killed:
        killed.setattr(seals, "put", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            seals.append(run / name, SAID)
    assert seals.read(run / name)[-1] == SAID
    seals.append(run / name, SAID)
    assert len(seals.read(run / name)) == before + 2


def test_without_the_partys_keys_records_are_shown_and_not_relied_on(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    assert len(seals.read(tmp_path / "copy" / GATE, shown=True)) == 3
    with pytest.raises(StorageError, match="keys/secret"):
        decisions(tmp_path / "copy")
    rewritten(run / GATE, lambda said: {**said, "broken": False})
    with pytest.raises(StorageError, match="line 1"):
        seals.read(run / GATE, shown=True)
