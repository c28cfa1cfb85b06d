"""What was answered before limits what is answered next, and the file that holds it tells nothing."""

import json
import stat
from datetime import UTC, datetime, timedelta

import pytest

from tacit.align.history import Alignment, History
from tacit.errors import RefusedError, StorageError, UsageError

SECRET = bytes(range(32))
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Clock:
    def __init__(self):
        self.time = START

    def __call__(self):
        return self.time


@pytest.fixture(name="clock")
def _clock():
    return Clock()


@pytest.fixture(name="path")
def _path(tmp_path):
    return tmp_path / "alignments.jsonl"


@pytest.fixture(name="history")
def _history(path, clock):
    return History(path, SECRET, runs=3, few=5, share=0.01, now=clock)


def refused(call, *arguments):
    with pytest.raises(RefusedError) as caught:
        call(*arguments)
    assert caught.value.field == "history"
    return str(caught.value)


def test_what_was_written_is_read_again(history, path, hashes, clock):
    own = hashes(range(50))
    begun = history.begin("clinic", own, 70)
    clock.time += timedelta(minutes=2)
    history.end(begun, common=12)
    again = History(path, SECRET, now=clock)
    assert again.lines() == [
        begun,
        Alignment("2026-03-01T12:02:00+00:00", "clinic", 50, begun.digest, 70, 12, "done"),
    ]
    history.end(begun, result="minimum")
    assert again.lines()[-1].result == "minimum"
    assert again.lines()[-1].common == -1


def test_the_file_is_for_its_owner_alone_and_holds_no_hash(history, path, hashes):
    own = hashes(range(50))
    history.begin("clinic", own, 70)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_text()
    assert not any(row.tobytes().hex()[:16] in content for row in own)
    assert SECRET.hex() not in content
    assert set(json.loads(content)) == {"date", "peer", "count", "digest", "peer_count", "common", "result"}


def test_the_digest_knows_the_set_and_not_its_order_and_needs_the_secret(history, tmp_path, hashes):
    own = hashes(range(50))
    digests = [history.begin(f"peer {n}", rows, 9).digest for n, rows in enumerate((own, own[::-1], own[1:]))]
    assert digests[0] == digests[1]
    other = History(tmp_path / "other", SECRET[::-1]).begin("peer", own, 9).digest
    assert len({*digests, other}) == 3


def test_too_many_alignments_with_one_peer_are_refused_until_they_are_old(history, hashes, clock):
    own = hashes(range(50))
    for size in (1000, 2000, 3000):
        history.check("clinic", own)
        history.begin("clinic", own, size)
        clock.time += timedelta(days=1)
    text = refused(history.check, "clinic", own)
    assert "clinic has aligned 3 times since 2026-03-01T12:00:00+00:00, and 3 are allowed in 30 days" in text
    refused(history.begin, "clinic", own, 9000)
    assert len(history.lines()) == 3
    history.check("registry", own)
    clock.time = START + timedelta(days=30, seconds=1)
    history.check("clinic", own)


def test_an_alignment_counts_from_its_beginning_however_it_ended(history, hashes):
    own = hashes(range(50))
    for size in (1000, 2000, 3000):
        history.begin("clinic", own, size)  # the peer hung up once it had its answer
    refused(history.check, "clinic", own)


def test_ends_do_not_count_twice(history, hashes):
    for size in (1000, 2000):
        history.end(history.begin("clinic", hashes(range(5)), size))
    history.check("clinic", hashes(range(5)))


@pytest.mark.parametrize(
    ("former", "size", "passes"),
    [
        (100, 100, True),  # the same set again
        (100, 101, False),
        (100, 95, False),
        (100, 94, True),
        (100, 106, True),
        (10_000, 10_100, False),  # one in a hundred
        (10_000, 10_101, True),
        (10_000, 9_900, False),
    ],
)
def test_an_edited_set_is_refused(former, size, passes, history, hashes):
    own = hashes(range(50))
    history.begin("clinic", own, former)
    if passes:
        history.check("clinic", own, size)
        return
    text = refused(history.check, "clinic", own, size)
    assert f"clinic comes with {size} ids, and on 2026-03-01T12:00:00+00:00 it came with {former}" in text
    assert f"about {abs(former - size)} single ids" in text
    history.check("registry", own, size)
    history.check("clinic", hashes(range(20)), size)  # another set of this party's: nothing to compare
    history.check("clinic", own)


def test_edits_can_be_allowed(path, hashes):
    history = History(path, SECRET, allow_edits=True)
    history.begin("clinic", hashes(range(50)), 100)
    history.begin("clinic", hashes(range(50)), 101)
    assert len(history.lines()) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-1],
        lambda text: b"[" * 99_999 + b"\n",
        lambda text: text[:-20],
        lambda text: text.replace(b"{", b"[", 1),
        lambda text: text.replace(b'"count":50', b'"count":"50"'),
        lambda text: text.replace(b'"count":50', b'"count":true'),
        lambda text: text.replace(b'"count":50,', b""),
        lambda text: text.replace(b'"count"', b'"more":1,"count"'),
        lambda text: text.replace(b"2026-03-01", b"2026-13-01"),
        lambda text: text.replace(b"+00:00", b""),
        lambda text: text.replace(b"clinic", b"cl\xffnic"),
        lambda text: b"\n" + text,
    ],
)
def test_a_damaged_line_is_reported_and_stops_everything(damage, history, path, hashes):
    history.begin("clinic", hashes(range(50)), 100)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StorageError, match=r"alignments.jsonl, line 1 is damaged: .* restore the file"):
        history.check("clinic", hashes(range(50)))


def test_the_damaged_line_has_its_number(history, path, hashes):
    for size in (1000, 2000):
        history.begin("clinic", hashes(range(50)), size)
    path.write_bytes(path.read_bytes() + b'{"date": "20')
    with pytest.raises(StorageError, match="line 3 is damaged"):
        history.lines()


def test_a_place_that_can_not_be_written(tmp_path, hashes):
    history = History(tmp_path / "missing" / "file", SECRET)
    assert history.lines() == []
    with pytest.raises(StorageError, match="an alignment that is not written down does not start"):
        history.begin("clinic", hashes(range(5)), 100)
    with pytest.raises(StorageError, match="can't be read"):
        History(tmp_path, SECRET).lines()


@pytest.mark.parametrize("options", [{"secret": b"short"}, {"secret": SECRET, "runs": 0}])
def test_wrong_use(options, path):
    with pytest.raises(UsageError, match=r"a secret of 5 bytes|runs = 0"):
        History(path, **options)
