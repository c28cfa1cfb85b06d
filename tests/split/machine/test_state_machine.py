"""Parties that crash, lose power, are cut off, hear things twice, lie and come back from old copies: always one answer.

`TACIT_STATE_MACHINE=1000 pytest tests/split/machine` tries a thousand runs instead of a few.
"""

import os
import shutil
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tacit.contracts import Message
from tacit.errors import RefusedError, StorageError, TacitError
from tacit.labels.tally import Tally
from tacit.split import handshake
from tacit.split.correspondence import Correspondence
from tacit.split.session import LabelSession
from tests.split.machine.broken import AsksFirst, DrawsAnew, HearsTwice, SendsFirst, TakesAnything

WHO, WHICH = st.integers(0, 5), st.sampled_from((0, 1, 2, 4, 7))
THEN = st.sampled_from((0, 1, 2, 3, 5, 8, 13, 21, 34, 55))  # how much goes on after a rule: a turn is about 15 events


class Machine(RuleBasedStateMachine):
    """What may happen to the parties of a trial, and what must hold all the time.

    Attributes:
        trials: the tools of conftest.
        names: of the feature parties.
        known: what an undisturbed run says and ends with; see `undisturbed`.
        broken: parts of the parties that are to be other ones.
    """

    trials, names, known, broken = None, (), None, {}

    def __init__(self):
        super().__init__()
        self.trial = self.trials.Trial(self.names, **self.broken)
        self.copies = []  # whose, where, how many turns it can know of with each peer, how many requests, what left

    @property
    def everybody(self):
        return ("label", *self.names)

    def who(self, number):
        return self.everybody[number % len(self.everybody)]

    def process(self, name):
        """A party that runs and has opened its journal, else None."""
        found = self.trial.processes.get(name)
        return found if found is not None and not found.over and found.exchanges else None

    # --- rules ---

    @initialize(then=THEN)
    def begin(self, then):
        self.start_all(then)

    @rule(then=THEN)
    def go_on(self, then):
        for _ in range(then):
            self.trial.event()

    @rule(who=WHO, count=st.sampled_from((1, 2, 4, 9)))
    def go_alone(self, who, count):
        """One party is fast, or the others are slow."""
        process = self.trial.processes[self.who(who)]
        for _ in range(count):
            if not process.over and (process.ready() or process.deadline < float("inf")):
                self.trial.now = self.trial.now if process.ready() else max(self.trial.now, process.deadline)
                process.go()

    @rule(who=WHO, power=st.booleans(), again=st.sampled_from((True, True, False)), then=THEN)
    def crash(self, who, power, again, then):
        if not self.trial.processes[self.who(who)].over:
            self.trial.end(self.who(who), power)
        if again:
            self.trial.start(self.who(who))
        self.go_on(then)

    @rule(then=THEN)
    def start_all(self, then):
        self.keep_running()
        self.go_on(then)

    @rule(then=THEN)
    def cut(self, then):
        self.trial.cut()
        self.go_on(then)

    @rule(who=WHO, then=THEN)
    def lose(self, who, then):
        for link in self.trial.processes[self.who(who)].links:
            if link.inbox:
                link.inbox.popleft()
        self.go_on(then)

    @rule(who=WHO, which=WHICH, first=st.booleans(), then=THEN)
    def deliver_again(self, who, which, first, then):
        """Something that was said to a party once is said to it again, before or after what is under way."""
        process = self.process(self.who(who))
        links = [link for link in process.links if link.open] if process else []
        old = list(self.trial.said.get((links[-1].peer, process.name), {}).values()) if links else []
        if old:
            put = links[-1].inbox.appendleft if first else links[-1].inbox.append
            put((old[-1 - which % len(old)], "again"))
        self.go_on(then)

    def greeted(self, number):
        """The label party's end of a feature party's link, and what it was asked there; None where there is no link."""
        label, name = self.process("label"), self.names[number % len(self.names)]
        links = [link for link in label.links if link.open and link.greeted and link.peer == name] if label else []
        return (links[-1], label.exchanges[name]) if links else (None, None)

    @rule(who=WHO, which=WHICH, then=THEN)
    def equivocate(self, who, which, then):
        """A feature party asks for something else in a step that is answered or open."""
        link, exchange = self.greeted(who)
        known = sorted(exchange._turns) if link else []
        if known:
            true = exchange.request(known[-1 - which % len(known)])
            changes = {"payload": true.payload + 1} if true.payload.numel() else {"rows": bytes(16)}
            link.inbox.appendleft((replace(true, **changes), "forged"))
        self.go_on(then)

    @rule(who=WHO, which=WHICH, then=THEN)
    def ask_about_other_rows(self, who, which, then):
        """A feature party asks what is due, or will be, about rows that are not those of the batch."""
        link, exchange = self.greeted(who)
        if link:
            kind, step = self.trials.ASKED[min(exchange.complete + which, self.trials.TURNS - 1)]
            like = torch.empty(0, dtype=torch.uint8) if kind == "done" else torch.zeros(4, 2)
            link.inbox.appendleft((Message(step, kind, like, bytes(16)), "forged"))
        self.go_on(then)

    @rule(who=WHO, then=THEN)
    def copy(self, who, then):
        """Somebody makes a backup, while the party works."""
        process = self.process(self.who(who))
        if process is not None:
            folder = self.trial.folder / f"copy-{len(list(self.trial.folder.iterdir()))}"
            exchanges = process.exchanges.items()
            counted = {peer: exchange.complete for peer, exchange in exchanges}
            if process.name == "label":  # where it has all requests of a turn it comes to the answers by itself
                counted = dict.fromkeys(self.names, min(exchange.asked for _, exchange in exchanges))
            asked = sum(exchange.asked for _, exchange in exchanges)
            shutil.copytree(self.trial.folder / process.name, folder)
            left = self.trial.tally(process.name).read_text()
            self.copies.append((process.name, folder, counted, asked, left))
        self.go_on(then)

    @precondition(lambda self: self.copies)
    @rule(which=WHICH, whole=st.booleans())
    def come_back_from_a_copy(self, which, whole):
        """A party's folder comes back from a backup, alone or with all of its machine, and so with what is counted."""
        trial, at = self.trial, -1 - which % len(self.copies)
        name, folder, counted, asked, left = self.copies[at]
        trial.until(lambda: self.all_run() or self.somebody_is_through())
        if self.somebody_is_through():
            return
        trial.cut()
        trial.end(name)
        (trial.folder / name).rename(trial.folder / "newest")
        shutil.copytree(folder, trial.folder / name)
        stale = {peer for peer, complete in counted.items() if self.has_seen_more(peer, name, complete)}
        newest = trial.tally(name).read_text()
        behind = not whole and asked < int(newest)
        if whole:
            trial.tally(name).write_text(left)
        trial.start(name)
        if stale or behind:
            self.is_refused(name, stale, behind)
            shutil.rmtree(trial.folder / name)
            (trial.folder / "newest").rename(trial.folder / name)
            trial.tally(name).write_text(newest)
            trial.start(name)
        else:
            shutil.rmtree(trial.folder / "newest")
            self.forget_what_is_lost(name, counted)
            self.copies = self.copies[: len(self.copies) + at]  # those after it are of a time that never was

    def keep_running(self, but=""):
        """Start whoever does not run, as after an excused end, but for one."""
        for name in self.everybody:
            if name != but:
                self.trial.start(name)

    def all_run(self):
        self.keep_running()
        return all(self.process(name) for name in self.everybody)

    def has_seen_more(self, peer, name, complete):
        """Whether a peer knows of an answer, or of a request, that an old copy can't come to know of by itself."""
        process = self.trial.processes[peer]
        exchange, in_hand = process.exchanges[name], process.taken[name]
        return max(exchange.complete if name == "label" else exchange.asked - 1, in_hand) > complete

    def is_refused(self, name, stale, behind):
        """A party that came back from an old copy never gets or gives an answer, and stops."""
        trial, process = self.trial, self.trial.processes[name]
        to = stale if name == "label" else {name}
        before = {peer: trial.sent["label", peer] for peer in to}
        trial.until(lambda: self.keep_running(but=name) or process.over)
        assert {peer: trial.sent["label", peer] for peer in to} == before
        if name == "label" or behind:
            assert isinstance(process.error, StorageError), process.error
            assert "older copy" in str(process.error)
            assert not behind or "have left" in str(process.error), "the peer had to say it"
        else:
            assert isinstance(process.error, RefusedError), process.error
            assert process.error.field == "journal"
            trial.due["journal"] += 1
        process.kill()
        del trial.processes[name]

    def forget_what_is_lost(self, name, counted):
        """What a copy does not know of, and nobody else saw, is never heard again: it will be said anew."""
        for peer, complete in counted.items():
            said = self.trial.said.setdefault((name, peer), {})
            self.trial.said[name, peer] = {what: m for what, m in said.items() if self.trials.TURN_OF[what] < complete}

    def somebody_is_through(self):
        """Whether a feature party has the last answer, if only in hand: it needs nobody any more."""
        running = [process for name in self.names if (process := self.process(name))]
        had = [max(process.exchanges["label"].complete, process.taken["label"]) for process in running]
        return self.trials.TURNS in had or any(self.trial.finished(name) for name in self.everybody)

    # --- what must hold ---

    @invariant()
    def every_answer_that_left_is_the_one_answer(self):
        answers = self.known["answers"]
        for what, found in self.trial.answers.items():
            assert found == answers[what], f"{what} was answered otherwise, or twice"

    @invariant()
    def all_remember_what_was_said(self):
        for process in self.trial.processes.values():
            for peer, exchange in process.exchanges.items():
                one, other = (peer, "label") if process.name == "label" else (process.name, peer)
                for turn, said in exchange._transcripts.items():
                    assert said == self.known["transcripts"][one, other][turn]

    @invariant()
    def there_is_an_alarm_for_every_lie_and_for_nothing_else(self):
        assert +self.trial.alarms == +self.trial.due

    @invariant()
    def nobody_stops_without_a_reason(self):
        for name in self.trial.ended():
            process = self.trial.processes[name]
            if process.error is not None and name not in self.trial.excused:
                raise process.error

    def teardown(self):
        """After everything the run comes to its end, and it is the end of an undisturbed run."""
        try:
            self.trial.to_the_end()
            self.every_answer_that_left_is_the_one_answer()
            self.all_remember_what_was_said()
            self.there_is_an_alarm_for_every_lie_and_for_nothing_else()
            assert self.trial.answers.keys() == self.known["answers"].keys()
            assert torch.equal(self.trial.weights(), self.known["weights"])
        finally:
            self.trial.close()


@pytest.fixture(name="machine", scope="module")
def _machine(trials):
    """Makes machines, and compares each with one undisturbed run of the same parties."""
    runs = {}

    def make(names, **broken):
        if names not in runs:
            runs[names] = undisturbed(trials.Trial(names))
        parts = {"known": runs[names], "broken": broken}
        return type("Disturbed", (Machine,), {"trials": trials, "names": names, **parts})

    return make


def undisturbed(trial):
    transcripts = {(name, "label"): {} for name in trial.names}
    for name in ("label", *trial.names):
        trial.start(name)
    while not all(process.over for process in trial.processes.values()):
        trial.event()
        for name in trial.names:
            for exchange in trial.processes[name].exchanges.values():
                transcripts[name, "label"] |= exchange._transcripts
    trial.to_the_end()
    assert not trial.alarms
    assert all(len(found) == 1 for found in trial.answers.values())
    known = {"answers": dict(trial.answers), "transcripts": transcripts, "weights": trial.weights()}
    trial.close()
    return known


def tried(examples, **more):
    return settings(
        max_examples=int(os.environ.get("TACIT_STATE_MACHINE", examples)), stateful_step_count=30, deadline=None,
        database=None, report_multiple_bugs=False, suppress_health_check=list(HealthCheck), **more,
    )  # fmt: skip


@pytest.mark.parametrize(("names", "examples"), [(("one",), 40), (("one", "two"), 30)], ids=["two", "three"])
def test_whatever_happens_there_is_one_answer_and_the_run_ends_as_if_nothing_had(machine, names, examples):
    run_state_machine_as_test(machine(names), settings=tried(examples))


# --- that the machine would notice -----------------------------------------------------------------------------------


BROKEN = [
    {"answering": DrawsAnew}, {"answering": TakesAnything}, {"answering": SendsFirst}, {"asking": AsksFirst},
    {"asking": HearsTwice},
]  # fmt: skip


def notices(machine, **broken):
    enough = tried(2000, phases=[Phase.generate])  # it ends with the first; some faults take some hundred at some seeds
    with pytest.raises((AssertionError, TacitError, ValueError)):
        run_state_machine_as_test(machine(("one",), **broken), settings=enough)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: next(iter(broken.values())).__name__)
def test_a_channel_that_breaks_its_word_is_noticed(machine, broken):
    notices(machine, **broken)


def test_a_journal_that_is_not_synced_is_noticed(machine, trials):
    notices(machine, journal=type("Unsynced", (trials.Disk,), {"sync": lambda self: self._usable()}))


def test_a_handshake_that_does_not_look_at_the_journals_is_noticed(machine, monkeypatch):
    monkeypatch.setattr(handshake, "_check_journals", lambda *_: None)
    notices(machine)


def test_a_tally_that_lets_an_older_copy_go_on_is_noticed(machine, monkeypatch):
    monkeypatch.setattr(Tally, "check", lambda self, known, left: self.reach(left))
    notices(machine)


def test_an_exchange_that_forgets_what_it_was_asked_is_noticed(machine, monkeypatch):
    monkeypatch.setattr(Correspondence, "turn_of", lambda self, message: None)
    notices(machine)


def test_a_session_that_does_not_look_at_requests_is_noticed(machine, monkeypatch):
    monkeypatch.setattr(LabelSession, "judge", lambda self, message: None)
    notices(machine)
