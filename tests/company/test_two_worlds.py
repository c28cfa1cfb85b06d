"""Two worlds that differ in the labels, units or history of the rows that a partner has picked: it hears the same.

The party whose rows they are is a process of its own.
"""

from __future__ import annotations

import builtins
import json
from dataclasses import dataclass
from itertools import count

import polars as pl
import pytest

from tacit import errors
from tacit.wire.line import STOPPED
from tests.torture.processes import Processes
from tests.torture.workers import FAILED, SECRET
from tests.worlds import KINDS, PICKED, SETTINGS, Pair, World, copied, whole

VERBS = ("align", "train", "private", "keyed", "serve")


@pytest.fixture(scope="module", name="processes")
def _processes(tmp_path_factory):
    with Processes(tmp_path_factory.mktemp("processes") / "log") as processes:
        yield processes


def heard(pair, verb):
    """What the partner hears, and at last how its command ends.

    Points and matches are made side by side, in any order and whatever labels are.
    """
    side_by_side, messages = verb in ("align", "private"), pair.heard.messages
    messages = sorted(messages, key=lambda one: str(one[0])) if side_by_side else messages
    return [*messages, ("end", pair.heard.ended)]


def lived(processes, path, name, world):
    """What the partner hears of each verb in a world.

    Whether a model is let out that was trained step by step under a limit is the last answer of its gate.
    """
    setting = SETTINGS[name]
    made = setting.companies(path)
    world.make(made, setting)
    pair, found = Pair(processes, made), {}
    for verb in VERBS[:2] if "limit" in name else VERBS:
        pair.do(verb)
        found[verb] = heard(pair, verb)
        if verb == "align":
            world.live(made, setting)
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_whatever_the_rows_are_the_partner_hears_the_same(name, processes, tmp_path):
    """Messages in kind, order, number and size, and the same end, for every verb in which both are at work."""
    seen = [lived(processes, tmp_path / str(seed), name, World(seed)) for seed in (1, 2)]
    assert seen[0] == seen[1]
    assert all(len(messages) > 3 and messages[-1] == ("end", "") for messages in seen[0].values())


@pytest.mark.parametrize("name", SETTINGS)
def test_in_many_worlds(name, processes, tmp_path):
    worlds = [World(seed, kind) for seed, kind in enumerate(KINDS, start=3)]
    first, *others = [lived(processes, tmp_path / world.kind, name, world) for world in worlds]
    for world, found in zip(worlds[1:], others, strict=True):
        assert found == first, world


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
@pytest.mark.parametrize("name", SETTINGS)
def test_in_worlds_that_are_drawn(name, seed, processes, tmp_path):
    seen = [lived(processes, tmp_path / str(one), name, World(one)) for one in (seed, seed + 1000)]
    assert seen[0] == seen[1]


WRONG = {
    "one exchange": ("late", 7, "has the label 7 in the column 'late'"),
    "counted by persons": ("person", "", "unit = 'person'"),
    "three classes": ("how", 7, "has the label 7 in the column 'how'"),
    "numbers": ("delay", float("inf"), "in the column 'delay'"),
    "split": ("late", 7, "has the label 7 in the column 'late'"),
}
"""By setting a column, what no row may have there, and words of the refusal."""


@pytest.mark.parametrize("where", ["among those that were picked", "elsewhere"])
@pytest.mark.parametrize(("name", "verb"), [("one exchange", "align"), *((name, "train") for name in WRONG)])
def test_what_no_row_may_have_is_refused_wherever_it_stands(name, verb, where, processes, tmp_path):
    """Before anybody is met: what is asked of the table is asked of all of it."""
    made = SETTINGS[name].companies(tmp_path / "made")
    pair, path = Pair(processes, made), made.path / "airline" / "data.parquet"
    if verb == "train":
        pair.do("align")
    (column, value, words), ids = WRONG[name], whole()["id"]
    wrong = pl.col("id") == ids[PICKED - 1 if where == "among those that were picked" else PICKED]
    table = pl.read_parquet(path)
    table.with_columns(pl.when(wrong).then(pl.lit(value)).otherwise(column).alias(column)).write_parquet(path)
    ended = pair.do(verb, refused=True)
    assert (pair.heard.messages, pair.heard.ended) == ([], "OverError")
    assert words in ended.events[-1]["message"]


@pytest.mark.parametrize("side", ["airline", "airport"])
@pytest.mark.parametrize("name", ["one exchange", "split"])
def test_a_table_that_has_changed_too_much_says_so_before_anything_leaves(name, side, processes, tmp_path):
    """In private, with the next act; of more than 1% of what was aligned, common or not."""
    pair = Pair(processes, SETTINGS[name].companies(tmp_path / "made"), party=side)
    pair.do("align")
    path = pair.made.path / side / "data.parquet"
    table = pl.read_parquet(path)
    table.slice(table.height // 50).write_parquet(path)
    ended = pair.do("train", refused=True)
    assert (pair.heard.messages, pair.heard.ended) == ([], "OverError")
    said = ended.events[-1]["message"]
    assert f"{table.height // 50} of the {table.height} ids that were aligned are no longer" in said
    assert "run `tacit align --again` on all sides" in said


# --- restarts ---------------------------------------------------------------------------------------------------------

AFTERWARDS = {
    "a picked row's": (0,), "another row's": (PICKED,), "all of them": range(PICKED + 50), "one that can't be": None,
}  # fmt: skip
"""Whose labels are others when a party that was killed starts again."""


def relabelled(made, rows):
    """Give rows of the airline's table the other label; None for a label 7 among those that were picked."""
    path = made.path / "airline" / "data.parquet"
    ids = whole()["id"]
    chosen = pl.col("id").is_in(ids[[0] if rows is None else list(rows)].implode())
    other = pl.lit(7) if rows is None else 1 - pl.col("late")
    pl.read_parquet(path).with_columns(late=pl.when(chosen).then(other).otherwise("late")).write_parquet(path)


@pytest.mark.parametrize(
    ("name", "point", "count"),
    [("split", "answer written", 1), ("split", "answer sent", 9), ("one exchange", "answers written", 1),
     ("one exchange", "flips sent", 1)],
)  # fmt: skip
def test_a_party_that_starts_again_goes_on_whatever_its_labels_are_now(name, point, count, processes, tmp_path):
    """What it sends was settled when it began: whether its door opens would else tell whether a label was changed."""
    first = Pair(processes, SETTINGS[name].companies(tmp_path / "made"))
    first.do("align")
    first.do("train", kill_at=point, count=count)
    seen, sent = {}, {}
    for which, rows in {"nobody's": (), **AFTERWARDS}.items():
        pair = Pair(processes, copied(first.made, tmp_path / which))
        relabelled(pair.made, rows)
        ended = pair.do("train", refused=name == "one exchange" and rows is None)
        seen[which], sent[which] = heard(pair, "train"), pair.heard.raw
        assert ended.code == 0 or "label 7" in ended.events[-1]["message"]
    assert all(one == seen["nobody's"] for one in seen.values())
    assert len(set(sent.values())) == 1


# --- errors -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A call that reads labels, units or a book, or decides about what leaves, after the alignment."""

    setting: str
    verb: str
    where: str  # "MODULE:NAME"
    number: int = 1  # of the calls in one command
    party: str = "airline"  # whose call it is

    def __str__(self):
        return f"{self.verb} {self.where.partition(':')[2]} {self.number}".replace(" 1", "")


ONE, STEPS, LIMITED = "one exchange", "split", "split under a limit"
PERSONS = "counted by persons"
ROWS = "tacit.company.aligned:Aligned"
LABELS, RUN, BOOK = "tacit.exchange.label_party", "tacit.split.label_run", "tacit.labels.book:Book"
QUIET = (
    # nothing is open while labels, units or the book are: the partner waits for a door, or has everything
    Call(ONE, "train", f"{ROWS}.found"), Call(ONE, "train", f"{ROWS}.table"),
    Call(ONE, "train", "tacit.company.aligned:check_table"), Call(ONE, "train", f"{LABELS}:read_target"),
    Call(PERSONS, "train", f"{LABELS}:_keys"), Call(ONE, "train", f"{LABELS}:open_book"),
    Call(ONE, "train", f"{LABELS}:open_book", 2), Call(ONE, "train", f"{BOOK}.release"),
    Call(ONE, "train", f"{BOOK}.unpaid"), Call(ONE, "train", f"{BOOK}.summary"),
    Call(ONE, "train", f"{LABELS}:told_beside"), Call(ONE, "train", f"{LABELS}:LabelBound.of"),
    Call(ONE, "train", f"{LABELS}:fit_head"), Call(ONE, "train", f"{LABELS}:figures"),
    Call(ONE, "train", "tacit.exchange.train:exchange_report"),
    Call(STEPS, "train", f"{RUN}:prepare"), Call(STEPS, "train", f"{RUN}:_filled"),
    Call(STEPS, "train", "tacit.split.run:counted_facts"),
    Call(ONE, "private", "tacit.serve.predict_label:Scoring.write"),
    Call(ONE, "serve", "tacit.serve.live:LiveModel._score"), Call(ONE, "serve", "tacit.serve.partners:Account.take"),
    Call(STEPS, "train", "tacit.split.run:counted_facts", 2, party="airport"),
)  # fmt: skip
"""Calls after which the partner hears nothing of an error."""

TOLD = (
    Call(STEPS, "train", "tacit.split.run:counted_facts", 2),
    Call(STEPS, "train", "tacit.split.label_party:LabelParty._noise"),
    Call(STEPS, "train", "tacit.split.label_party:LabelParty._noise", 9),
    Call(STEPS, "train", f"{RUN}:LabelPartyGuard.before"), Call(STEPS, "train", f"{RUN}:LabelPartyGuard.leaving", 5),
    Call(STEPS, "train", f"{RUN}:LabelPartyGuard.turned", 3), Call(STEPS, "train", f"{RUN}:_measure"),
    Call(STEPS, "train", "tacit.split.session:LabelSession._evaluate", 4),
    Call(LIMITED, "train", "tacit.split.gates:GradientGate.tried_out"),
    Call(LIMITED, "train", "tacit.split.gates:GradientGate.look"),
    Call(ONE, "private", "tacit.company.align:History.begin"),
    Call(ONE, "keyed", "tacit.serve.predict_label:record"),
    # of the feature party: its books, and what it has answered before
    Call(ONE, "train", "tacit.company.shipments:Shipments.enter", party="airport"),
    Call(ONE, "train", "tacit.exchange.feature_party:before", party="airport"),
    Call(ONE, "keyed", "tacit.serve.predict_features:charge_keyed", party="airport"),
    Call(ONE, "keyed", "tacit.serve.predict_features:counted_book", party="airport"),
    Call(ONE, "private", "tacit.company.align:History.begin", party="airport"),
)  # fmt: skip
"""Calls after which it hears that the party has stopped, and nothing else."""

ERRORS = ("LabelsError", "StorageError", "KeyError", "MemoryError", "OSError", "LimitError")


@pytest.fixture(scope="module", name="before")
def _before(processes, tmp_path_factory):
    """Companies of a setting and a world that have come as far as a verb, each made once."""
    made = {}

    def before(setting, verb, seed):
        done = {"align": 0, "train": 1}.get(verb, 2)
        if (setting, done, seed) not in made:
            path = tmp_path_factory.mktemp("before") / str(seed)
            if done == 0:
                companies = SETTINGS[setting].companies(path)
                World(seed).make(companies, SETTINGS[setting])
            elif done == 1:
                companies = copied(before(setting, "align", seed), path)
                Pair(processes, companies).do("align")
                World(seed).live(companies, SETTINGS[setting])
            else:
                companies = copied(before(setting, "train", seed), path)
                Pair(processes, companies).do("train")
            made[setting, done, seed] = companies
        return made[setting, done, seed]

    return before


def failed(processes, before, path, call, seed, error):
    """What the partner hears where a call of its peer fails."""
    made = copied(before(call.setting, call.verb, seed), path)
    pair = Pair(processes, made, party=call.party)
    ended = pair.do(call.verb, fails=f"{call.where} {call.number} {error}")
    assert SECRET.encode() not in pair.heard.raw
    if call.verb != "serve":
        assert ended.code == (1 if hasattr(builtins, error) else FAILED), ended.events
    if call.verb == "train":
        status = json.loads((made.run(call.party) / "status.json").read_bytes())
        ended_as = {"stopped", "paused"} if error == "LimitError" else {"stopped"}
        assert status["state"] in ended_as
        assert SECRET in status["reason"], "its owner hears the cause"
        assert hasattr(errors, error) or "give the same command again" in status["reason"]
        for name in ("report.json", "report.html", "label_bound.json"):
            shown = made.run(call.party) / name
            assert not shown.exists() or SECRET not in shown.read_text(), "what may be handed on"
    elif call.verb != "serve" and hasattr(errors, error):
        assert SECRET in ended.events[-1]["message"]
    return heard(pair, call.verb)


def outcomes(processes, before, path, call):
    """In four worlds with an error of its own each; which ones is another matter for each call."""
    chosen = [ERRORS[(len(call.where) + place) % len(ERRORS)] for place in range(4)]
    return [failed(processes, before, path / error, call, seed, error) for seed, error in enumerate(chosen, start=1)]


READ = [
    *(("one exchange", "airline", "train", first, 12) for first in (10, 12, 17)),
    *(("split under a limit", "airline", "train", first, 12) for first in (11, 15, 21)),
    *(
        pytest.param(name, party, verb, 1, 1, marks=[pytest.mark.slow, pytest.mark.long])
        for name in SETTINGS
        for party in ("airline", "airport")
        for verb in (VERBS[:2] if "limit" in name else VERBS)
    ),
]
"""Whose table, facts and books can't be read at which of its readings, from a first one on, so many apart."""


@pytest.mark.parametrize(("name", "party", "verb", "first", "apart"), READ)
def test_a_reading_that_fails_says_nothing_wherever_it_is(name, party, verb, first, apart, processes, before, tmp_path):
    """Of all that a command reads of its own: the list of calls above is kept by hand, and this one is not."""
    for number in count(first, apart):
        seen, error = [], ERRORS[number % len(ERRORS)]
        for seed in (1, 2):
            made = copied(before(name, verb, seed), tmp_path / f"{number} {seed}")
            pair = Pair(processes, made, party=party)
            ended = pair.do(verb, fails=f"reads {number} {error}")
            reached = sum(event["event"] == "read" for event in ended.events) == number
            assert SECRET.encode() not in pair.heard.raw
            assert reached or ended.code == (-9 if verb == "serve" else 0), ended.events
            messages = heard(pair, verb)
            words = [json.loads(message[-1])["field"] for message in messages if message[0] == "refusal"]
            assert set(words) <= {STOPPED.field, "failure"}
            if verb == "serve":  # how often its partner comes back is a matter of when the test is over
                links = [place for place, message in enumerate(messages) if message[0] == "link"]
                messages = messages[: links[1]] if len(links) > 1 else messages[:-1]
            if verb in ("align", "private"):  # last words may be lost where both were just sending
                messages = [message for message in messages if message[0] != "refusal"]
            seen.append([reached, *messages])
        assert seen[0] == seen[1], (number, error)
        if not seen[0][0]:
            return


@pytest.mark.parametrize("call", QUIET, ids=str)
def test_an_error_over_labels_units_or_the_book_says_nothing(call, processes, before, tmp_path):
    seen = outcomes(processes, before, tmp_path, call)
    assert all(one == seen[0] for one in seen)
    assert not any(kind == "refusal" for kind, *_ in seen[0])


@pytest.mark.parametrize("call", TOLD, ids=lambda call: f"{call.party} {call}")
def test_an_error_while_both_are_at_work_says_that_it_is_over(call, processes, before, tmp_path):
    seen = outcomes(processes, before, tmp_path, call)
    assert all(one == seen[0] for one in seen)
    assert all(told(one) for one in seen)


def told(messages):
    """Whether the last word was that the party has stopped, in the words that are the same whatever has happened."""
    kind, *_, words = messages[-2]
    return kind == "refusal" and json.loads(words) == {"field": STOPPED.field, "reason": str(STOPPED)}


@pytest.mark.parametrize("name", ["Account.take", "row_keys"])
def test_a_service_that_fails_says_so_and_no_more(name, processes, before, tmp_path):
    """Of the feature party, which goes on serving."""
    seen = outcomes(processes, before, tmp_path, Call(ONE, "serve", f"tacit.serve.answering:{name}", party="airport"))
    assert all(one == seen[0] for one in seen)
    kind, *_, words = seen[0][-2]
    assert (kind, json.loads(words)["field"]) == ("refusal", "failure")
