"""The audit after the fact: of a run between two folders, whatever kills lay between."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from benchmarks._companies import align_rows
from tacit.audit import standard
from tacit.audit.inputs import InputFinding
from tacit.audit.run import Finding
from tacit.cli.audit import audit
from tacit.company.audit import audit_run, find_run
from tacit.company.folder import Folder
from tacit.company.verdict import Missing, input_leaks_of, leaks_of, not_tested, passed, verdict, worst_of
from tacit.contracts import Estimate
from tacit.errors import UsageError
from tacit.split.record import RecordedRun
from tacit.split.train import train

RUN = "small"


class KilledError(Exception):
    """A party ends in the middle of a turn."""


@pytest.fixture(name="ready")
def _ready(companies, monkeypatch):
    """The two companies, aligned; three epochs of three batches, with a checkpoint after every two turns."""
    monkeypatch.setattr("tacit.split.audit._DECODERS", ("linear_decoder",))  # networks take long and say nothing new
    monkeypatch.setattr(standard, "ATTACKS", ("norm", "cosine", "likelihood"))
    monkeypatch.setattr(standard, "JOINED", ())
    rows = np.arange(60)
    for company in companies:
        contract = company.path / "contract.toml"
        contract.write_text(contract.read_text().replace("epochs = 1", "epochs = 3"))
        settings = company.path / "party.toml"
        settings.write_text(
            settings.read_text() + "training.checkpoint_every = 2\nrecord = { last = 4, follow = 40 }\n"
        )
        folder = Folder(company.path)
        own = rows if folder.config.role == "label" else 59 - rows
        align_rows(folder, own, id="00", seed=1, digest="00")
    return [company.path for company in companies]


def trained(paths, kill=None):
    """Both train at the same time; the label party may be killed as often as `kill` counts points of its turns."""
    points = iter(kill or ())
    left = [next(points, None)]

    def trace(point):
        if left[0] is not None:
            left[0] -= 1
            if left[0] < 0:
                left[0] = next(points, None)
                raise KilledError

    def label():
        while True:
            try:
                return train(paths[0], trace=trace)
            except KilledError:
                continue

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(label), pool.submit(train, paths[1])]
        return [future.result(timeout=60) for future in futures]


def transcript(path):
    return RecordedRun.open(path / "runs" / RUN / "transcript")


def test_every_visit_is_there_and_both_sides_can_audit_their_own(ready):
    trained(ready)
    for path, side, measure in zip(ready, ("features", "label"), ("leak_auc", "variance_read"), strict=True):
        found = transcript(path)
        assert (found.steps, found.unrecorded) == (9, 0)
        assert found.batches().view.rows.shape == (4, 16)
        report = audit_run(path / "runs" / RUN)
        assert (report.subject.side, report.subject.steps, report.subject.kind) == (side, 9, "run")
        assert {one.on for one in report.leaks} == {"batches", "visits"}
        assert {one.measure for one in report.leaks} == {measure}
        assert report.worst is not None
        assert report.verdict == "no limit"
        assert all(one.about and one.knows and one.costs for one in report.leaks)
    app = typer.Typer()
    app.command()(audit)
    done = CliRunner().invoke(app, ["--folder", str(ready[0]), "--limit", "0.6", "--json"])
    report = json.loads((ready[0] / "runs" / RUN / "report.json").read_text())
    assert json.loads(done.stdout) == report
    assert done.exit_code == (report["verdict"] != "held")
    assert report["subject"]["peers"] == ["airport"]
    with pytest.raises(UsageError, match="let the peer audit its own run"):
        audit_run(ready[0], side="label")


def test_after_kills_the_transcript_is_that_of_an_uninterrupted_run(ready):
    """The label party ends again and again, in the middle of turns and around checkpoints."""
    trained(ready, kill=(23, 9, 14, 31))
    found = transcript(ready[0])
    assert (found.steps, found.unrecorded) == (9, 0)
    assert found.batches().view.rows.shape == (4, 16)
    visits = found.visits().view
    assert len(visits.rows) == 3 or int(visits.rows.unique().numel()) < 40
    peer = transcript(ready[1])  # it was never killed
    assert torch.equal(found.batches().view.rows, peer.batches().view.rows)
    assert torch.equal(found.batches().view.gradient, peer.batches().view.gradient)
    theirs = peer.visits().view  # each follows examples of its own choice
    both = [row for row in visits.rows[0].tolist() if row in set(theirs.rows[0].tolist())]
    assert both
    for row in both:
        mine, other = (view.gradient[:, view.rows[0] == row] for view in (visits, theirs))
        assert torch.equal(mine, other)


def test_a_run_is_found_by_its_folder_or_by_its_party(ready):
    for path in (ready[0], ready[0] / "runs" / RUN):
        folder, where = find_run(path)
        assert (folder.path, where) == (ready[0], ready[0] / "runs" / RUN)
    with pytest.raises(UsageError, match="put the contract of 'other' there"):
        find_run(ready[0] / "runs" / "other")
    with pytest.raises(UsageError, match="nothing is recorded there"):
        audit_run(ready[0])


# --- from findings to a report ---------------------------------------------------------------------------------------


def finding(value, *, high=None, baseline=None, upper=None):
    leak = Estimate(value, value - 0.02, value + 0.02 if high is None else high)
    before = None if baseline is None else Estimate(baseline, baseline, baseline)
    return Finding("norm", leak, before, leak.high if upper is None else upper)


def test_the_worst_is_the_farthest_above_what_its_attacker_had():
    leaks = leaks_of([finding(0.7, baseline=0.69), finding(0.6), finding(0.55)])
    assert worst_of(leaks).value == 0.6
    assert worst_of([]) is None


@pytest.mark.parametrize(
    ("found", "missing", "said"),
    [
        ([finding(0.55)], [], "held"),
        ([finding(0.59)], [], "broken"),
        ([finding(0.55, upper=0.61)], [], "broken"),
        ([finding(0.8, baseline=0.78)], [], "held"),
        ([finding(0.55)], [Missing("an attack", "it does not apply")], "held"),
        ([finding(0.55)], [Missing("an attack", "it failed", matters=True)], "not judged"),
        ([finding(0.9)], [Missing("an attack", "it failed", matters=True)], "broken"),
        ([], [], "not judged"),
    ],
    ids=["under", "over", "over in some batches", "had it", "not applicable", "failed", "over and failed", "none"],
)  # fmt: skip
def test_a_limit_holds_only_where_every_upper_end_is_under_it_and_nothing_is_missing(found, missing, said):
    leaks = leaks_of(found)
    assert verdict(leaks, 0.6, missing) == said
    assert verdict(leaks, None, missing) == "no limit"
    assert bool(passed(leaks, 0.6)) == (said == "broken")


def test_what_was_read_of_features_is_a_share_of_their_variance():
    (leak,) = input_leaks_of([InputFinding("linear_decoder", relative=Estimate(0.9, 0.8, 1.1))])
    assert (leak.measure, round(leak.value, 6), leak.low, round(leak.high, 6)) == ("variance_read", 0.1, 0.0, 0.2)
    assert verdict([leak], 0.15) == "broken"
    assert verdict([leak], 0.25) == "held"


def test_reports_say_what_no_transcript_can_tell():
    for side in ("features", "label"):
        said = not_tested(side, [Missing("the attack hint", "no clean gradient")])
        assert said[0].what == "the attack hint"
        assert any("protocol" in one.what for one in said)
        assert any("put together" in one.what for one in said)
