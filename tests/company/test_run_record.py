"""What a run's folder tells beside its messages, put into a report."""

import json

import pytest

from tacit.company.folder import Folder
from tacit.company.overrides import overrides
from tacit.errors import StorageError
from tacit.report import seals
from tacit.report.document import Leak, Report, Subject
from tacit.report.run_files import GATE, LIVE, OVERRIDES
from tacit.split.run_record import broken, with_records


def report(side="features", limit=0.6, verdict="held"):
    measure = "leak_auc" if side == "features" else "variance_read"
    figures = {"attack": "norm", "value": 0.2, "low": 0.1, "high": 0.25, "measure": measure}
    return Report(
        made="2026-01-01T00:00:00+00:00", limit=limit, verdict=verdict, worst=Leak(on="batches", **figures),
        leaks=(Leak(on="batches", **figures),),
        subject=Subject(kind="run", side=side, run="small", protection="iso(t=1)"),
    )  # fmt: skip


def decided(where, epoch, **said):
    usual = {
        "time": "2026-01-01T00:00:00+00:00", "turn": 10 * (epoch - 1), "decision": "keep",
        "strength": "iso(t=1)", "limit": 0.6, "reason": "it holds", "broken": False, "worst": None, "foreseen": None,
    }  # fmt: skip
    seals.append(where / GATE, {"epoch": epoch, **usual, **said})


def seen(where, *looks):
    lines = [{"step": step, "turn": step, "epoch": epoch, "found": found} for step, epoch, found in looks]
    (where / LIVE).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(name="where")
def _where(companies):
    folder = Folder(companies[0].path)
    return folder.run_folder(folder.contract)


def test_a_folder_that_tells_nothing_adds_nothing(where):
    found = with_records(report(), where)
    assert (found.verdict, found.moments, found.decisions, found.curves, found.overrides) == ("held", (), (), (), ())


def test_epochs_and_decisions_are_told(where):
    decided(where, 1, decision="pause")
    decided(where, 1, decision="resume")
    history = [{"epoch": epoch, "test_auc": 0.7 + epoch / 10} for epoch in range(3)]
    (where / "status.json").write_text(json.dumps({"history": history}))
    found = with_records(report(), where)
    assert [one.epoch for one in found.moments] == [1, 2, 3]
    assert [one.figures["test_auc"] for one in found.moments] == pytest.approx([0.7, 0.8, 0.9])
    assert [one.decision for one in found.decisions] == ["pause", "resume"]


def test_the_worst_look_of_an_epoch_is_judged_from_both_sides(where):
    """An attack that is wrong far too often reads as well as one that is right."""
    seen(where, (1, 0, {"norm": 0.6, "cosine": 0.2}), (5, 0, {"norm": 0.7, "cosine": 0.3}), (9, 1, {"norm": 0.5}))
    first, second = (one.worst for one in with_records(report(), where).moments)
    assert (first.attack, first.value) == ("cosine", pytest.approx(0.75))
    assert first.low < first.value < first.high
    assert (second.attack, second.value, second.low, second.high) == ("norm", 0.5, 0.5, 0.5)
    curves = {one.attack: (one.steps, one.values) for one in with_records(report(), where).curves}
    assert curves["cosine"] == ((1, 5), pytest.approx((0.8, 0.7)))
    assert curves["norm"][0] == (1, 5, 9)


def test_a_share_of_variance_is_not_folded(where):
    seen(where, (1, 0, {"linear_decoder": 0.1}))
    (moment,) = with_records(report(side="label", limit=0.3), where).moments
    assert (moment.worst.value, moment.worst.measure) == (0.1, "variance_read")


def test_what_the_gate_measured_counts_more_than_looks(where):
    seen(where, (1, 0, {"norm": 0.9}))
    worst = {"attack": "residual", "on": "visits", "value": 0.58, "low": 0.55, "upper": 0.61}
    decided(where, 2, worst=worst)
    (moment,) = with_records(report(), where).moments
    assert (moment.worst.attack, moment.worst.value, moment.worst.high) == ("residual", 0.58, 0.61)


@pytest.mark.parametrize(("limit", "verdict"), [(0.6, "broken"), (None, "no limit")])
def test_what_was_broken_once_stays_broken(where, limit, verdict):
    assert not broken(where)
    decided(where, 2, broken=True)
    decided(where, 3)
    assert broken(where)
    before = "held" if limit else "no limit"
    assert with_records(report(limit=limit, verdict=before), where).verdict == verdict


def test_overrides_are_told_and_a_changed_one_is_refused(where):
    said = {"time": "2026-01-01T00:00:00+00:00", "who": "Ada", "what": "export", "reason": "agreed"}
    seals.append(where / OVERRIDES, said)
    assert [one.who for one in overrides(where)] == ["Ada"]
    assert with_records(report(), where).overrides == overrides(where)
    path = where / OVERRIDES
    path.write_bytes(path.read_bytes().replace(b"Ada", b"Eve"))
    with pytest.raises(StorageError, match="changed by hand"):
        with_records(report(), where)


@pytest.mark.parametrize("text", ["", "[]", "no", "[" * 99_999, '{"history": [1, {"loss": 2}]}'])
def test_a_status_that_cannot_be_read_tells_no_history(where, text):
    (where / "status.json").write_text(text)
    assert with_records(report(), where).moments == ()


def test_after_the_last_epoch_the_audit_itself_counts_more_than_looks(where):
    seen(where, (1, 0, {"norm": 0.9}), (2, 1, {"norm": 0.9}))
    decided(where, 1)
    first, last = (one.worst for one in with_records(report(), where).moments)
    assert first.value == 0.9
    assert (last.attack, last.value) == (report().worst.attack, report().worst.value)
