"""A limit between two companies: training goes on, pauses or stops, and no peer learns why."""

import json
import math

import polars as pl
import pytest
from typer.testing import CliRunner

from tacit.audit import standard
from tacit.audit.foresight import QUICK
from tacit.audit.gate import Figure, Verdict
from tacit.cli import app, main
from tacit.company.agreed import agree
from tacit.company.audit import audit_run
from tacit.company.folder import Folder
from tacit.errors import GaveUpError, LimitError, LinkError, RefusedError, StorageError, UsageError
from tacit.report import seals
from tacit.split import gates
from tacit.split.gate import decisions
from tacit.split.gates import EmbeddingGate, GradientGate
from tacit.split.journal import Journal

MATCHED = 'protect.gradient = { name = "matched", leak_auc = 0.85 }'
STRONG = 'protect.gradient = { name = "matched", leak_auc = 0.6 }'
GAUSSIAN = 'protect.embedding = [{ name = "gaussian", snr = 20.0 }]'


def halt(point, count):
    """A trace that ends a training for now, at so many passes of a point."""
    left = [count]

    def trace(passed):
        left[0] -= passed == point
        if passed == point and not left[0]:
            raise LinkError("for now")

    return trace


def decided(companies, folder=None):
    return [(one["epoch"], one["decision"]) for one in companies.told(folder)]


def kinds(folder):
    """What is in the journal of a run: what was received, answered, noted."""
    with Journal(folder / "journal") as journal:
        return {record.kind for _, record in journal.records()}


def answers(folder):
    """How many are written down."""
    with Journal(folder / "journal") as journal:
        return sum(record.kind == "answered" for _, record in journal.records())


def everything(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


# --- the limit holds ------------------------------------------------------------------------------------------------


def test_a_label_partys_limit_is_looked_at_before_epochs_and_never_in_them(gated, monkeypatch):
    monkeypatch.setattr(standard, "ATTACKS", QUICK)  # networks take seconds and say nothing new here
    monkeypatch.setattr(standard, "JOINED", standard.JOINED[:4])
    gated.set(f"{STRONG}\nlimit = 0.8", contract="epochs = 4")
    _, airport = gated.train()
    told = gated.told()
    assert [one["decision"] for one in told] == ["keep"] * 3
    assert [one["turn"] for one in told] == [0, 10, 20]
    report = audit_run(gated.airline)
    assert report.subject.protection == told[-1]["strength"] == "matched(leak_auc=0.6, visits=4)"
    assert (report.verdict, report.limit) == ("held", 0.8)
    assert [one.epoch for one in report.moments] == [1, 2, 3, 4]
    assert not list(gated.run(gated.airport).glob("gate.jsonl"))
    assert airport.history


def test_a_feature_party_holds_a_limit_of_its_own(gated):
    gated.set(airport=f"{GAUSSIAN}\nlimit = 0.5")
    _, airport = gated.train()
    assert isinstance(airport, LimitError)
    assert decided(gated, gated.airport) == [(1, "pause")]
    assert kinds(gated.run(gated.airline)) == set(), "no embedding was sent"
    gated.another_run("strong").set(airport='protect.embedding = [{ name = "gaussian", snr = 0.3 }]')
    for outcome in gated.train():
        assert not isinstance(outcome, Exception), outcome
    told = decisions(gated.airport / "runs" / "strong")
    assert [one["decision"] for one in told] == ["keep"] * 4
    assert told[-1]["foreseen"]["upper"] <= 0.5
    assert not decisions(gated.airline / "runs" / "strong")


@pytest.mark.parametrize("follow", [400, 8])
def test_early_decisions_attack_what_was_sent_though_no_batch_was_kept_yet(gated, follow):
    """One batch of eight is kept, and that is not one of the first two; few visits are no reason to end."""
    gated.set(
        f'protect.gradient = {{ name = "iso", t = 30.0 }}\nlimit = 0.999\nrecord = {{ last = 8, follow = {follow} }}',
        f"{GAUSSIAN}\nlimit = 0.999\nrecord = {{ last = 1, follow = {follow} }}",
    )
    outcomes = gated.train()
    assert not any(isinstance(outcome, UsageError) for outcome in outcomes), outcomes
    before, early, *later = gated.told(gated.airport)
    assert (before["turn"], before["measured"]) == (0, [])
    assert (early["turn"], early["decision"]) == (2, "keep")
    told = gated.told(gated.airline)
    assert [one["turn"] for one in told] == [0, 10, 20][: len(told)], "a label party decides between epochs"
    if follow == 400:
        assert not any(isinstance(outcome, Exception) for outcome in outcomes), outcomes
        assert {one["on"] for one in early["measured"]} == {"visits"}
        assert {one["on"] for one in later[-1]["measured"]} == {"batches", "visits"}
        assert {one["on"] for one in told[-1]["measured"]} == {"batches", "visits"}


@pytest.mark.parametrize("positive", [0, 1, 2, 7])
def test_a_decision_under_a_bound_does_not_hang_on_whether_attacks_could_be_tried(gated, positive):
    """The partner may have picked the rows: among those that are aligned few, if any, have the other label."""
    path = gated.airline / "data.parquet"
    rows = pl.read_parquet(path)
    others = pl.DataFrame({"id": [-1, -2], "y": [0, 1], "a": [0.0, 0.0], "b": [0.0, 0.0], "c": [0.0, 0.0]})
    few = rows.with_columns(y=(pl.col("id") < positive).cast(pl.Int64))
    pl.concat([few, others]).write_parquet(path)
    gated.set(f"{STRONG}\nlimit = 0.8")
    for outcome in gated.train():
        assert not isinstance(outcome, Exception), outcome
    assert decided(gated) == [(1, "keep"), (2, "keep"), (3, "keep")]


@pytest.mark.parametrize("positive", [0, 1])
def test_a_decision_takes_as_long_as_a_rehearsal_with_both_classes(gated, monkeypatch, positive):
    """Of one class nothing can be measured, and of one odd row little: that takes less time."""
    path = gated.airline / "data.parquet"
    rows = pl.read_parquet(path)
    others = pl.DataFrame({"id": [-1, -2], "y": [0, 1], "a": [0.0, 0.0], "b": [0.0, 0.0], "c": [0.0, 0.0]})
    pl.concat([rows.with_columns(y=(pl.col("id") < positive).cast(pl.Int64)), others]).write_parquet(path)
    gated.set(f"{STRONG}\nlimit = 0.8")
    both = []

    def evenly(rehearse, work):
        both.append((rehearse(), work()))
        return both[-1][1]

    monkeypatch.setattr(gates, "evenly", evenly)
    gated.train()
    verdicts = [(rehearsed, made) for rehearsed, made in both if isinstance(made, Verdict)]
    assert [made.action for _, made in verdicts] == ["keep"] * 3
    assert all(rehearsed.foreseen is not None for rehearsed, _ in verdicts)
    assert all(rehearsed.worst is not None for rehearsed, _ in verdicts[1:])
    measured = [{one.attack for one in looked} for pair in both if isinstance(pair[1], list) for looked in pair[:1]]
    assert all(len(names) > len(QUICK) for names in measured)


# --- training pauses -------------------------------------------------------------------------------------------------


def test_bare_gradients_never_leave_under_a_limit(gated):
    gated.set("limit = 0.6")
    airline, airport = gated.train()
    assert isinstance(airline, LimitError)
    assert type(airport).__name__ == "LeftAloneError"
    assert decided(gated) == [(1, "pause")]
    status = json.loads((gated.run(gated.airline) / "status.json").read_text())
    assert status["state"] == "paused"
    reason = gated.told()[0]["reason"]
    assert "the limit 0.6 can't be held" in reason
    assert reason in status["reason"] == str(airline)
    assert kinds(gated.run(gated.airline)) == {"received"}, "nothing was answered"
    seen = everything(gated.airport)
    assert not any(word in seen for word in (b"limit 0.6", b"paused", b"likelihood", b"LimitError"))
    shown = CliRunner().invoke(app, ["status", "--folder", str(gated.airline)])
    assert f"paused by its limit: {airline}"[:60] in shown.stdout


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_around_a_pause_lets_nothing_out(gated, monkeypatch, killed, when):
    """The decision is taken again at the next start, and again at the one after that."""
    append, cut = seals.append, []

    def once(path, said):
        if cut or when == "after":
            append(path, said)
        if not cut:
            cut.append(said["decision"])
            raise killed

    monkeypatch.setattr(seals, "append", once)
    gated.set("limit = 0.6")
    for _ in range(2):
        airline, _ = gated.train()
        assert isinstance(airline, LimitError)
    assert cut == ["pause"]
    assert {one["decision"] for one in gated.told()} == {"pause"}
    assert kinds(gated.run(gated.airline)) == {"received"}


def test_a_pause_in_the_middle_lets_nothing_more_out_at_any_later_start(gated):
    """Six batches were answered without a limit; the next that is due is not, nor those after it."""
    gated.set(STRONG, contract="epochs = 4")
    gated.train(airline=halt("answer sent", 6))
    gated.set("limit = 0.55")
    left = set()
    for _ in range(3):
        airline, _ = gated.train()
        assert isinstance(airline, LimitError), airline
        left.add(answers(gated.run(gated.airline)))
    assert {one["decision"] for one in gated.told()} == {"pause"}
    assert {one["turn"] for one in gated.told()} == {10}
    assert len(left) == 1, "no start let anything out"


@pytest.mark.parametrize("figures", [(), (math.nan,)], ids=["none", "no number"])
@pytest.mark.parametrize("whose", ["airline", "airport"])
def test_a_measurement_that_is_missing_pauses(gated, monkeypatch, whose, figures):
    """At the next point after the first: a feature party's is in the middle of an epoch."""
    kind = GradientGate if whose == "airline" else EmbeddingGate
    found = [Figure("norm", "batches", value, value, value) for value in figures]

    def lost(point):
        if point == ("answer sent" if whose == "airline" else "request sent"):
            for what in ("look", "foreseen", "tried_out"):
                monkeypatch.setattr(kind, what, lambda *_: found)

    gated.set(**{whose: f"{STRONG if whose == 'airline' else GAUSSIAN}\nlimit = 0.999"})
    outcomes = dict(zip(("airline", "airport"), gated.train(**{whose: lost}), strict=True))
    assert isinstance(outcomes[whose], LimitError), outcomes[whose]
    told = gated.told(getattr(gated, whose))
    assert [(one["turn"], one["decision"]) for one in told] == [(0, "keep"), (10 if whose == "airline" else 2, "pause")]


def test_decisions_of_another_version_are_refused(gated):
    """One that had sent under another protection would go on under the one that is configured."""
    gated.set(f"{STRONG}\nlimit = 0.8")
    gated.train(airline=halt("answer sent", 6))
    path = gated.run(gated.airline) / "gate.jsonl"
    seals.append(path, {**gated.told()[-1], "level": 3})
    airline, _ = gated.train()
    assert isinstance(airline, StorageError)
    assert "gate.jsonl: its decisions are of another version" in str(airline)


def test_where_followed_examples_are_of_one_class_a_limit_pauses_before_the_first_gradient(gated):
    """The attacks on all visits can't be tried, and what they would say is not known before all was sent."""
    gated.set('limit = 0.97\nrecord = { last = 8, follow = 1 }\nprotect.gradient = { name = "iso", t = 3.0 }')
    airline, _ = gated.train()
    assert isinstance(airline, LimitError)
    assert "before epoch 1" in str(airline)
    assert "no attack could be tried" in str(airline)


def test_a_paused_run_goes_on_under_a_higher_limit(gated):
    gated.set(f"{MATCHED}\nlimit = 0.6")
    airline, _ = gated.train()
    assert isinstance(airline, LimitError)
    again, _ = gated.train()
    assert isinstance(again, LimitError), "nothing has changed"
    gated.set("limit = 0.99")
    airline, airport = gated.train()
    assert decided(gated) == [(1, "pause"), (1, "pause"), (1, "resume"), (2, "keep"), (3, "keep")]
    assert airline.party.protect.strength == 0.85
    assert len(airport.history) == 3
    assert audit_run(gated.airline).pauses == 2, "each is an answer about labels"
    assert json.loads((gated.run(gated.airline) / "status.json").read_text())["state"] == "finished"


@pytest.mark.parametrize(
    ("error", "code"),
    [(LimitError("it pauses"), 1), (RefusedError("run", "airline has ended this run"), 3)],
    ids=["limit", "refused"],
)
def test_the_command_tells_the_reason_with_its_exit_code(gated, monkeypatch, capsys, error, code):
    def train(*_, **__):
        raise error

    monkeypatch.setattr("tacit.split.train.train", train)
    agree(Folder.at(gated.airline))
    monkeypatch.setattr("sys.argv", ["tacit", "train", "--quiet", "--folder", str(gated.airline)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert str(error) in capsys.readouterr().err


# --- training stops --------------------------------------------------------------------------------------------------


def test_a_stop_is_final_and_the_peer_is_told_that_not_why(gated):
    gated.set('limit = 0.6\non_limit = "stop"')
    for _ in range(2):  # the second start is refused at once
        airline, airport = gated.train()
        assert isinstance(airline, LimitError)
        assert "stopped" in str(airline)
        assert isinstance(airport, RefusedError)
        assert airport.field == "run"
        assert "limit" not in str(airport)
    assert decided(gated) == [(1, "stop")]
    gated.set("limit = 0.99")
    airline, _ = gated.train()
    assert isinstance(airline, LimitError)
    assert "another name" in str(airline)


def test_a_feature_party_that_stops_says_so(gated):
    gated.set(airport='limit = 0.1\non_limit = "stop"')
    airline, airport = gated.train(alone=False)
    assert isinstance(airport, LimitError)
    assert isinstance(airline, GaveUpError)
    assert "airport gave up: its own limit has ended this run; agree on another `run`" in str(airline)


def test_where_a_feature_party_pauses_its_partner_need_not_wait_and_both_go_on_under_another_limit(gated):
    gated.set(airport="limit = 0.1")
    airline, airport = gated.train(alone=False)
    assert isinstance(airport, LimitError)
    assert isinstance(airline, GaveUpError)
    assert "airport gave up: its own limit keeps its embeddings at home" in str(airline)
    gated.unset("limit", gated.airport)
    for outcome in gated.train():
        assert not isinstance(outcome, Exception), outcome


# --- limits that come and go -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answers", [8, 12, 13], ids=["before an epoch", "at a checkpoint", "after one"])
def test_a_limit_that_is_set_in_the_middle_holds_from_the_next_epoch_on(gated, answers):
    """What was answered without a limit is answered again as it was, whatever the limit would have said."""
    gated.set(MATCHED, contract="epochs = 4")
    gated.train(airline=halt("answer sent", answers))
    gated.set("limit = 0.97")
    for outcome in gated.train():
        assert not isinstance(outcome, Exception), outcome
    assert gated.told()[0]["turn"] == (10 if answers < 11 else 20)


def test_a_run_goes_on_without_its_limit(gated):
    gated.set(f"{STRONG}\nlimit = 0.8", contract="epochs = 4")
    gated.train(airline=halt("answer sent", 15))
    gated.unset("limit")
    for outcome in gated.train():
        assert not isinstance(outcome, Exception), outcome
    assert (gated.told()[-1]["reason"], gated.told()[-1]["limit"]) == ("there is no limit", None)
