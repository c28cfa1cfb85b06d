"""What an alignment leaves behind is used as it was written or not at all, and every way out is named."""

import functools
import time

import numpy as np
import polars as pl
import pytest

from benchmarks._memory_links import links
from tacit._version import __version__
from tacit.align import psi
from tacit.align.curve import Engine
from tacit.align.history import History
from tacit.company.align import align
from tacit.company.aligned import Log, aligned, facts_of, pin
from tacit.company.departures import predictions
from tacit.company.facts import ALIGNMENT
from tacit.company.folder import Folder
from tacit.company.meeting import alignment_limits, dial, said_hello
from tacit.company.overrides import overrides
from tacit.errors import DataError, LinkError, RefusedError, StorageError, UsageError
from tacit.split.handshake import Hello
from tacit.wire.codec import PROTOCOL, control
from tacit.wire.line import refusal
from tests.at_once import all_of, at_once

REMEDY = "run `tacit align --again` on all sides"
ROWS = np.random.default_rng(0).permutation(500)


# --- aligning again --------------------------------------------------------------------------------------------------


def both(companies, **options):
    """Both align at the same time; what each has then, or the first error."""
    return all_of(*(functools.partial(Folder(company.path).align, **options) for company in companies))


def test_what_is_lost_or_spoilt_is_aligned_again_until_the_limit(companies):
    airline, airport = companies
    with pytest.raises(UsageError, match=r"nothing is aligned for the run 'small' here.*`tacit align --again` on all"):
        aligned(airline)
    settings = airline.path / "party.toml"
    settings.write_text(settings.read_text() + "align.runs_a_month = 2\n")
    first = both(companies)
    assert np.array_equal(first[0].rows, 59 - first[1].rows)
    assert both(companies) == first, "what is aligned already stays as it is"

    second = both(companies, again=True)
    assert second[0].id == second[1].id != first[0].id
    assert aligned(airline) == second[0]

    with pytest.raises(RefusedError, match=r"has aligned 2 times.*`\[align\] runs_a_month`.*party.toml of airline"):
        both(companies, again=True)
    assert aligned(airport) == second[1], "a refused alignment takes nothing away"
    history = History(Log(Folder(airline.path), ALIGNMENT))
    assert [line.result for line in history.lines()].count("begun") == 2


def test_an_older_copy_is_refused_before_anybody_is_met_until_somebody_answers_for_it(companies):
    """It would set back how often others have aligned."""
    airline, airport = companies
    before = facts_of(airline).path.read_bytes() if facts_of(airline).path.exists() else b""
    both(companies)
    facts_of(airline).path.write_bytes(before)
    refused = r"0 lines about alignments, and 2 were written.*facts\.sqlite in it.*`tacit align --after-restore NAME"
    for _ in range(2):
        with pytest.raises(StorageError, match=refused):
            Folder(airline.path).align()
    answered = functools.partial(align, airline.path, again=True, after_restore=("Ada", "disk lost"))
    all_of(answered, functools.partial(Folder(airport.path).align, again=True))
    (said,) = overrides(airline.path / "runs" / "small")
    assert (said.who, said.reason) == ("Ada", "disk lost")


def test_what_an_older_version_counted_is_refused_by_name(companies):
    """And once it is removed, what was counted under that name is in nobody's way."""
    folder = companies[0]
    (folder.path / "runs" / "alignments.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"alignments\.jsonl is that of an older version of Tacit"):
        folder.align()
    older, counted = folder.path / "runs" / "small" / "predictions.jsonl", folder.tally_path_of("predictions")
    older.parent.mkdir(exist_ok=True)
    older.write_text("{}\n")
    counted.parent.mkdir(parents=True, exist_ok=True)
    counted.write_text(f"{1:020d}\n")
    with pytest.raises(UsageError, match=r"predictions\.jsonl is that of an older version.*predictions are counted"):
        predictions(folder).read()
    older.unlink()
    assert predictions(folder).read() == []


def test_a_run_that_has_begun_keeps_its_rows(companies):
    airline, _ = companies
    first = both(companies)[0]
    pin(airline)
    with pytest.raises(
        UsageError, match=r"'small' has begun, and its rows stay what they are: `tacit align --run NAME` on all sides"
    ):
        airline.align(again=True)
    assert aligned(airline) == first


def test_another_run_of_the_same_parties_has_the_same_rows(companies):
    """Nobody is asked again."""
    first = both(companies)
    for company in companies:
        path = company.path / "contract.toml"
        path.write_text(path.read_text().replace('run = "small"', 'run = "second"'))
    second = both(companies)
    assert [(one.run, one.id) for one in second] == [("second", one.id) for one in first]
    assert np.array_equal(second[0].rows, first[0].rows)


# --- a link that breaks ----------------------------------------------------------------------------------------------


class HangsUp:
    """A link whose owner is gone once it has heard one message of this kind."""

    def __init__(self, link, kind):
        self.link, self.kind, self.peer = link, kind, link.peer

    def send(self, message):
        self.link.send(message)

    def recv(self, timeout=None):
        message = self.link.recv(timeout)
        if message is not None and message.kind == self.kind:
            self.link.close()
            raise LinkError("hung up")
        return message

    def close(self):
        self.link.close()


def hang_up(airport, kind, hashes):
    """Come as the airport with these ids, and hang up after this word of the airline's; whether there was one."""
    alignment = airport.contract.alignment
    options = {"cap": alignment.largest_set, "minimum": alignment.smallest_set, "patience": 5.0}
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            link = dial(airport, airport.contract, alignment_limits())
            said_hello(link, airport, airport.contract)
            break
        except LinkError:
            time.sleep(0.05)
    with Engine() as engine, pytest.raises(LinkError) as caught:
        psi.intersect(HangsUp(link, kind), hashes, engine=engine, **options)
    return str(caught.value) == "hung up"


def test_a_peer_that_hangs_up_with_its_answer_is_not_let_in_again(companies):
    airline, airport = companies
    fillers = np.random.default_rng(0).integers(0, 256, (400, 32), np.uint8)
    error, hung_up = at_once(Folder(airline.path).align, lambda: hang_up(airport, "matches", fillers))
    assert hung_up is True
    with pytest.raises(LinkError, match=r"airport had been answered.*nobody is let in.*`tacit align --again`"):
        raise error
    history = History(Log(Folder(airline.path), ALIGNMENT))
    assert [line.result for line in history.lines()] == ["begun"]
    with pytest.raises(LinkError):
        dial(airport, airport.contract, alignment_limits())

    airline_again, airport_again = both(companies, again=True)  # now that both have decided so
    assert airline_again.id == airport_again.id
    assert [line.result for line in history.lines()] == ["begun", "begun", "done"]


def test_a_link_that_breaks_before_any_answer_is_made_again(companies):
    airline, airport = companies

    def breaking():
        for _ in range(3):
            link = None
            while link is None:
                try:
                    link = dial(airport, airport.contract, alignment_limits())
                except LinkError:
                    time.sleep(0.05)
            said_hello(link, airport, airport.contract)
            link.close()
        return Folder(airport.path).align()

    waiting, other = all_of(Folder(airline.path).align, breaking)
    assert waiting.id == other.id
    assert [line.result for line in History(Log(Folder(airline.path), ALIGNMENT)).lines()] == ["begun", "done"]


# --- a peer that does something else ---------------------------------------------------------------------------------


def greeted(folder, message):
    """What becomes of the greeting of an aligning party when this message comes."""
    here, there = links(names=(folder.config.name, "airport"))
    there.send(message)
    said_hello(here, folder, folder.contract, patience=5.0)


def test_a_misspelt_column_is_told_before_anybody_is_met(companies):
    airline, _ = companies
    settings = airline.path / "party.toml"
    settings.write_text(settings.read_text().replace('label = "', 'label = "no_'))
    with pytest.raises(DataError, match=r"has no column 'no_.*; it has: .*correct the names"):
        Folder(airline.path).align()
    assert not Log(Folder(airline.path), ALIGNMENT).read()


def test_a_peer_that_trains_is_told_so(companies):
    airline, _ = companies
    hello = Hello(PROTOCOL, __version__, "small", "features", "airport", airline.contract.digest, "ab", "cd", "none",
                  0, 0, "")  # fmt: skip
    with pytest.raises(
        RefusedError, match=r"airport trains, airline aligns: run `tacit train`.*--again` on all"
    ) as one:
        greeted(airline, hello.message())
    assert one.value.field == "purpose"


@pytest.mark.parametrize(
    ("field", "value"), [("protocol", 99), ("version", "0.0"), ("contract", "e\x1b[2Jf"), ("purpose", "\x1b]0;x\x07")]
)
def test_a_peer_that_differs_is_refused_by_the_field_in_plain_characters(companies, field, value):
    airline, _ = companies
    said = {"protocol": PROTOCOL, "version": __version__, "contract": airline.contract.digest, "purpose": "align"}
    said["id columns"] = "1"
    greeted(airline, control("hello", 0, said))
    with pytest.raises(RefusedError) as caught:
        greeted(airline, control("hello", 0, {**said, field: value}))
    assert caught.value.field == field
    assert str(caught.value).isprintable()


def test_rows_that_are_named_by_other_numbers_of_columns_are_told_so(companies):
    airline, _ = companies
    said = {"protocol": PROTOCOL, "version": __version__, "contract": airline.contract.digest, "purpose": "align"}
    with pytest.raises(RefusedError, match="airline names a row by 1 columns, and airport by 2: both must name"):
        greeted(airline, control("hello", 0, {**said, "id columns": "2"}))


@pytest.mark.parametrize("terms", [{"run": "ffff", "epochs": "ffff", "new": "0"}, {}, "run", 7])
def test_the_keys_in_which_contracts_differ_are_named_as_far_as_the_peer_says(companies, terms):
    airline, _ = companies
    said = {"protocol": PROTOCOL, "version": __version__, "purpose": "align", "id columns": "1"}
    words = (
        "differs between airline and airport in run, epochs: it" if terms and isinstance(terms, dict) else "same contr"
    )
    with pytest.raises(RefusedError, match=words):
        greeted(airline, control("hello", 0, {**said, "contract": "f" * 64, "terms": terms}))


def test_where_no_id_is_common_each_sees_how_its_own_are_spelled(companies, monkeypatch):
    airport = companies[1]
    rows = pl.read_parquet(airport.data)
    rows.with_columns(id=pl.format("flight {}", pl.col("id"))).write_parquet(airport.data)
    sent = []
    monkeypatch.setattr("tacit.wire.line.refusal", lambda error: sent.append(str(error)) or refusal(error))

    def refused(company):
        with pytest.raises(RefusedError) as caught:
            Folder(company.path).align()
        return str(caught.value)

    own, theirs = all_of(*(functools.partial(refused, company) for company in companies))
    assert "airline's ids are whole numbers, for example '0'" in own
    assert "airport's ids are text, for example 'flight " in theirs
    assert not any("for example" in words for words in sent), "that is for its owner"


def test_a_peer_that_says_nothing(companies):
    here, _ = links(names=("airline", "airport"))
    with pytest.raises(LinkError, match="says nothing for 0 s"):
        said_hello(here, companies[0], companies[0].contract, patience=0.01)
