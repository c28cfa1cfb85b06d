"""What two parties refuse to differ about, field by field, and which journals go together."""

import itertools
from dataclasses import asdict, replace

import pytest
import torch

from benchmarks._memory_links import links
from tacit.contracts import Message
from tacit.errors import LinkError, ProtocolError, RefusedError, StorageError
from tacit.split.correspondence import Correspondence
from tacit.split.handshake import Hello, check, greet_feature_party, greet_label_party
from tacit.split.journal import Journal
from tacit.wire.codec import CONTROL, PROTOCOL, Limit, control
from tacit.wire.line import refusal

LIMITS = {
    "embedding": Limit(torch.float32, (2, 3)),
    "gradient": Limit(torch.float32, (2, 3)),
    **dict.fromkeys(("hello", "refusal"), CONTROL),
}


def hello(role, *, asked=0, complete=0, transcript="", **changes):
    party = {"features": "airport", "label": "airline"}[role]
    words = Hello(PROTOCOL, "1.0", "run", role, party, "c", "a", "r", "p", asked, complete, transcript)
    return replace(words, **changes)


FEATURES, LABEL = hello("features"), hello("label")


class Remembering:
    """In the place of an exchange: what was said in the turns before each."""

    def __init__(self, **said):
        self._said = {int(turn[1:]): transcript for turn, transcript in said.items()}

    def transcript(self, turn):
        said = self._said.get(turn, "")
        return None if said is None else bytes.fromhex(said)


NOTHING = Remembering()


# --- what must be equal ----------------------------------------------------------------------------------------------


def test_two_that_agree_go_on_whatever_their_protections_are():
    check(FEATURES, LABEL, NOTHING, name="airline")
    check(LABEL, replace(FEATURES, protection="other"), NOTHING, name="airport")


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("protocol", PROTOCOL + 1, "same version"),
        ("version", "1.1", "same version"),
        ("run", "another", r"compare `run` in contract\.toml"),
        ("contract", "d" * 64, r"compare contract\.toml"),
        ("alignment", "b", "tacit align"),
        ("rows", "s", "tacit align"),
    ],
)
def test_a_field_that_differs_is_named_with_what_to_do_on_both_sides(field, value, remedy):
    for mine, theirs, name in ((FEATURES, LABEL, "airline"), (LABEL, FEATURES, "airport")):
        with pytest.raises(RefusedError, match=f"^{field} is .* here and .* at {name}: .*{remedy}") as refused:
            check(mine, replace(theirs, **{field: value}), NOTHING, name=name)
        assert refused.value.field == field


@pytest.mark.parametrize("changes", [{"party": "airline"}, {"party": ""}, {"role": "label"}, {"role": "audit"}])
def test_a_party_is_who_its_certificate_says(changes):
    with pytest.raises(RefusedError, match=r"airport calls itself .*certificate says otherwise") as refused:
        check(LABEL, replace(FEATURES, **changes), NOTHING, name="airport")
    assert refused.value.field == "party"


def test_two_of_one_role_do_not_go_together():
    with pytest.raises(RefusedError, match="calls itself"):
        check(FEATURES, replace(FEATURES, party="airline"), NOTHING, name="airline")


def test_a_long_value_of_a_peer_is_cut_short():
    with pytest.raises(RefusedError) as refused:
        check(LABEL, replace(FEATURES, run="x" * 60_000), NOTHING, name="airport")
    assert len(str(refused.value)) < 200


# --- the journals ----------------------------------------------------------------------------------------------------

COUNTS = [(asked, complete) for asked in range(-1, 5) for complete in range(-1, 5)]
SANE = {(complete + open_one, complete) for complete in range(5) for open_one in (0, 1)}


def sane(counts):
    """Whether a journal can have so many requests and answers: one request is open at a time."""
    asked, complete = counts
    return 0 <= complete <= asked <= complete + 1


def verdict(feature, label, mine):
    """The rule, written out: what the side `mine` must do, with (asked, complete) of both sides."""
    if not sane(feature) or not sane(label):
        return "refuse"  # no journal has that
    if label[1] < feature[1]:  # the feature party has an answer that the label party does not know of
        return "stop" if mine == "label" else "refuse"
    if feature[0] < label[0]:  # the label party has a request that the feature party does not know of
        return "stop" if mine == "features" else "refuse"
    return "go on"


def act(mine, theirs, name):
    """What `check` does about two journals."""
    try:
        check(mine, theirs, NOTHING, name=name)
    except StorageError as error:
        return "stop" if "this folder is an older copy" in str(error) else str(error)
    except RefusedError as error:
        return "refuse" if error.field == "journal" else str(error)
    return "go on"


@pytest.mark.parametrize("mine", ["features", "label"])
def test_journals_go_together_where_neither_side_has_seen_more_than_the_other_wrote(mine):
    seen = set()
    for feature, label in itertools.product(COUNTS, COUNTS):
        if not sane(feature if mine == "features" else label):
            continue  # one's own words come from one's own journal
        sides = {
            role: hello(role, asked=asked, complete=complete)
            for role, (asked, complete) in (("features", feature), ("label", label))
        }
        other, name = ("label", "airline") if mine == "features" else ("features", "airport")
        found = act(sides[mine], sides[other], name)
        assert found == verdict(feature, label, mine), (feature, label)
        seen.add(found)
    assert seen == {"go on", "stop", "refuse"}


def test_what_goes_on_is_what_can_be_without_a_copy():
    """All states of two honest sides: a request is written here before it is there, an answer the other way round."""
    states, new = set(), {((0, 0), (0, 0))}
    while new:
        states |= new
        new = {after for (f, la) in new for after in steps(f, la)} - states
    allowed = {(f, la) for f in SANE for la in SANE if verdict(f, la, "label") == "go on"}
    assert {state for state in states if all(side in SANE for side in state)} == allowed


def steps(f, la):
    """What may be written next: the feature party's request or answer, the label party's; up to four turns."""
    if f[0] == f[1] and f[0] < 5:
        yield (f[0] + 1, f[1]), la
    if f[1] < la[1]:
        yield (f[0], f[1] + 1), la
    if la[0] < f[0]:
        yield f, (la[0] + 1, la[1])
    if la[1] < la[0]:
        yield f, (la[0], la[1] + 1)


NEWEST, BEFORE = "aa" * 32, "bb" * 32


@pytest.mark.parametrize(
    ("complete", "remembers", "fits"),
    [(2, NEWEST, True), (2, BEFORE, False), (1, BEFORE, True), (1, NEWEST, False), (1, "", False)],
)
def test_both_must_remember_the_same_messages(complete, remembers, fits):
    """The label party has two complete turns, the feature party as many, or one less: then the label party compares."""
    feature = hello("features", asked=2, complete=complete, transcript=remembers)
    label = hello("label", asked=2, complete=2, transcript=NEWEST)
    sides = [(label, feature, Remembering(_1=BEFORE, _2=NEWEST), "airport")]
    if complete == 2:
        sides.append((feature, label, Remembering(_2=remembers), "airline"))
    for one, two, exchange, name in sides:
        if fits:
            check(one, two, exchange, name=name)
        else:
            with pytest.raises(RefusedError, match=f"after {complete} turns .*different messages") as refused:
                check(one, two, exchange, name=name)
            assert refused.value.field == "transcript"


def test_a_feature_party_that_is_one_answer_behind_leaves_the_comparison_to_the_label_party():
    feature = hello("features", asked=2, complete=1, transcript=BEFORE)
    label = hello("label", asked=2, complete=2, transcript=NEWEST)
    check(feature, label, Remembering(_1=BEFORE, _2=None), name="airline")


def test_what_is_forgotten_is_not_taken_for_right():
    feature = hello("features", asked=2, complete=1)
    label = hello("label", asked=2, complete=2, transcript=NEWEST)
    with pytest.raises(RefusedError, match="different messages"):
        check(label, feature, Remembering(_1=None, _2=NEWEST), name="airport")


# --- words that are none ---------------------------------------------------------------------------------------------


def test_words_arrive_as_they_were_said():
    assert Hello.read(FEATURES.message()) == FEATURES


@pytest.mark.parametrize("field", asdict(FEATURES))
def test_a_missing_field_or_one_of_another_type_is_refused(field):
    said = asdict(FEATURES)
    with pytest.raises(ProtocolError, match=f"missing or unknown: '?{field}'?$"):
        Hello.read(control("hello", 0, {name: value for name, value in said.items() if name != field}))
    wrong = ("1", 1.0, True, None, [1]) if isinstance(said[field], int) else (1, None, ["x"], {})
    for value in wrong:
        with pytest.raises(ProtocolError, match=f"hello: {field} is a "):
            Hello.read(control("hello", 0, {**said, field: value}))


def test_an_unknown_field_and_another_kind_are_refused():
    with pytest.raises(ProtocolError, match=r"unknown: '?extra'?$"):
        Hello.read(control("hello", 0, {**asdict(FEATURES), "extra": 1}))
    with pytest.raises(ProtocolError, match="a embedding came before any hello"):
        Hello.read(Message(0, "embedding", torch.zeros(2, 3), b""))


# --- over a link -----------------------------------------------------------------------------------------------------


@pytest.fixture(name="sides")
def _sides(tmp_path):
    """A link and the exchange of each side, with one complete turn and a second request at the feature party."""
    first, answer, second = (
        Message(step, kind, torch.full((2, 3), float(step)), bytes(16))
        for step, kind in ((0, "embedding"), (0, "gradient"), (1, "embedding"))
    )
    journals = {role: Journal(tmp_path / role, sync=False) for role in ("features", "label")}
    exchanges = {
        role: Correspondence(journals[role], peer, role=role, limits=LIMITS)
        for role, peer in (("features", "airline"), ("label", "airport"))
    }
    for exchange in exchanges.values():
        exchange.write_request(0, first)
        exchange.write_answer(0, answer)
    exchanges["features"].write_request(1, second)
    left, right = links(LIMITS, names=("airport", "airline"))
    yield left, right, exchanges, second
    for journal in journals.values():
        journal.close()


def test_hello_says_where_the_journal_stands(sides):
    _, _, exchanges, _ = sides
    now = FEATURES.at(exchanges["features"])
    assert (now.asked, now.complete) == (2, 1)
    assert now.transcript == exchanges["label"].transcript(1).hex()
    assert replace(now, asked=0, complete=0, transcript="") == FEATURES


def test_after_the_greeting_the_open_request_is_there(sides):
    left, right, exchanges, second = sides
    right.send(LABEL.at(exchanges["label"]).message())  # so that one thread can do both
    greet_label_party(left, FEATURES, exchanges["features"])
    greet_feature_party(right, LABEL, exchanges["label"], patience=1)
    assert right.recv(1).fingerprint == second.fingerprint
    assert left.recv(1).kind == "hello"


def test_a_feature_party_that_is_refused_learns_why_and_sends_nothing_more(sides):
    left, right, exchanges, _ = sides
    right.send(refusal(RefusedError("rows", "they differ")))
    with pytest.raises(RefusedError, match="airline refused to go on, about 'rows': they differ") as refused:
        greet_label_party(left, FEATURES, exchanges["features"])
    assert refused.value.field == "rows"
    assert right.recv(1).kind == "hello"
    assert right.recv(0) is None


def test_a_label_party_tells_nothing_of_itself_to_one_that_differs(sides):
    left, right, exchanges, _ = sides
    left.send(replace(FEATURES.at(exchanges["features"]), version="2.0").message())
    with pytest.raises(RefusedError, match="version"):
        greet_feature_party(right, LABEL, exchanges["label"])
    left.send(refusal(RefusedError("rows", "they differ")))
    with pytest.raises(RefusedError, match="airport refused to go on, about 'rows'"):
        greet_feature_party(right, LABEL, exchanges["label"])
    assert left.recv(0) is None


def test_silence_is_a_broken_link(sides):
    left, right, exchanges, _ = sides
    with pytest.raises(LinkError, match="airline says nothing for 0 s"):
        greet_label_party(left, FEATURES, exchanges["features"], patience=0.01)
    right.recv(1)
    with pytest.raises(LinkError, match="airport says nothing for 0 s"):
        greet_feature_party(right, LABEL, exchanges["label"], patience=0.01)
