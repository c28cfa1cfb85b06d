"""Large sets lie on disk, go on after a break with the same bytes, and tell a peer that comes back nothing new."""

import functools
import json
import stat

import numpy as np
import pytest

from tacit.align import kept as kept_module
from tacit.align import psi
from tacit.align.curve import byte_order
from tacit.align.kept import NEEDED, STATE, Kept, room_in
from tacit.align.parts import Parts
from tacit.errors import LinkError, RefusedError, StorageError, UsageError

PATIENCE = 20.0
CHUNK = 7


pytestmark = pytest.mark.usefixtures("large")


class Cut:
    """A link that breaks after so many messages of its owner, either way."""

    def __init__(self, link, left):
        self.link, self.peer, self.left = link, link.peer, left

    def _count(self):
        self.left -= 1
        if self.left < 0:
            self.link.close()
            raise LinkError("cut")

    def send(self, message):
        self._count()
        self.link.send(message)

    def recv(self, timeout=None):
        message = self.link.recv(timeout)
        if message is not None:
            self._count()
        return message

    def close(self):
        self.link.close()


def said(link):
    """What a party sent that may only ever be said in one way, by what it is about."""
    found = {}
    for message in link.sent:
        about = message.kind, message.step
        if about != ("commitment", 0):  # there it says how far it is
            found[about] = message.payload.numpy().tobytes()
    return found


# --- what comes out --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two"),
    [(range(1), range(1)), (range(40), range(0)), (range(50), range(50)), (range(3, 600, 3), range(0, 600, 5))],
)
def test_both_find_what_the_sets_have_in_common(one, two, tmp_path, links, both, side, ordered):
    ends = links()
    first, second = both(
        functools.partial(side, ends[0], list(one), tmp_path / "one"),
        functools.partial(side, ends[1], list(two), tmp_path / "two"),
    )
    assert first == second == [row.tobytes() for row in ordered(sorted(set(one) & set(two)))]


def test_as_many_as_are_few_are_not_kept(tmp_path, links, both, side, monkeypatch):
    monkeypatch.setattr(psi, "LARGE", 21)
    ends = links()
    both(*(functools.partial(side, end, list(range(10)), tmp_path / str(at)) for at, end in enumerate(ends)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("cuts", [range(3, 60, 4), [1, 2, 200, 4, 6], [16, 17, 18, 19, 20]])
def test_cut_anywhere_it_goes_on_with_the_same_bytes(cuts, tmp_path, links, both, side, ordered):
    """Every message but the first has one content in all attempts together, and a chunk is multiplied once."""
    one, two, admitted = list(range(100)), list(range(60, 170)), []
    told = {}, {}
    for cut in [*cuts, 10**9]:
        ends = links()
        found = both(
            functools.partial(side, Cut(ends[0], cut), one, tmp_path / "one", admit=admitted.append),
            functools.partial(side, ends[1], two, tmp_path / "two"),
        )
        for before, end in zip(told, ends, strict=True):
            for about, content in said(end).items():
                assert before.setdefault(about, content) == content, about
        if not any(isinstance(each, Exception) for each in found):
            break
        assert all(isinstance(each, (list, LinkError)) for each in found), found
        if not ((tmp_path / "one" / STATE).exists() and (tmp_path / "two" / STATE).exists()):
            for folder in ("one", "two"):  # it broke before both had begun: as if nothing had been
                (tmp_path / folder / STATE).unlink(missing_ok=True)
            admitted.clear()
            for before in told:
                before.clear()
    assert found[0] == found[1] == [row.tobytes() for row in ordered(range(60, 100))]
    assert admitted == [110]


def test_products_are_sent_again_as_they_were_and_not_computed_again(tmp_path, links, both, side, engine):
    ends = links()
    run = [functools.partial(side, end, list(range(90)), tmp_path / str(at)) for at, end in enumerate(ends)]
    both(*run)
    multiplied = []

    class Counting:
        blind, blind_each, multiply = engine.blind, engine.blind_each, engine.multiply

        def multiply_each(self, chunks, key):
            for chunk in engine.multiply_each(chunks, key):
                multiplied.append(len(chunk))
                yield chunk

    ends = links()
    found = both(*(
        functools.partial(side, end, list(range(90)), tmp_path / str(at), engine=Counting())
        for at, end in enumerate(ends)
    ))  # fmt: skip
    assert len(found[0]) == 90
    assert multiplied == []
    assert {message.kind for end in ends for message in end.sent} == {"commitment"}


@pytest.mark.parametrize("lost", ["one", "two"])
@pytest.mark.parametrize("more", [0, 5])
def test_killed_before_it_was_written_down_it_begins_anew(lost, more, tmp_path, links, both, side, ordered):
    """Nobody has been answered: one has a state and the other none. Another number of ids is admitted as another."""
    other, admitted = {"one": "two", "two": "one"}[lost], {"one": [], "two": []}
    own = {"one": list(range(40)), "two": list(range(20, 60))}
    kept = Kept(tmp_path / other, ordered(own[other]))
    kept.begin(cap=100_000, minimum=0, nonce="00" * 16, key="00" * 32, peer_nonce="11" * 16, peer_count=40 + more)
    ends = links()
    found = both(*(
        functools.partial(side, end, own[name], tmp_path / name, admit=admitted[name].append)
        for end, name in zip(ends, own, strict=True)
    ))  # fmt: skip
    assert found[0] == found[1] == [row.tobytes() for row in ordered(range(20, 40))]
    assert admitted == {lost: [40], other: [40] if more else []}


# --- what is on the disk ---------------------------------------------------------------------------------------------


def test_files_are_their_owners_alone_and_gone_at_the_end(tmp_path, links, both, side):
    with room_in(tmp_path, again=False) as room:
        ends = links()
        both(*(functools.partial(side, end, list(range(40)), room / str(at)) for at, end in enumerate(ends)))
        files = [path for path in room.rglob("*") if path.is_file()]
        assert {path.name for path in files} >= {*NEEDED, "order"}
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        assert {stat.S_IMODE(path.stat().st_mode) for path in (room, room / "0")} == {0o700}
    assert {path.name for path in room.rglob("*") if path.is_file()} == set(NEEDED), "it can go on"
    with (
        room_in(tmp_path, again=False) as room,
        pytest.raises(StorageError, match="another process uses this run"),
        room_in(tmp_path, again=False),
    ):
        pass
    for at in "01":
        (room / at / STATE).unlink()
    with room_in(tmp_path, again=False):
        assert not list(room.iterdir()), "nothing is of use without its state"
    assert not room.exists()


def test_again_begins_anew(tmp_path, links, both, side):
    with room_in(tmp_path, again=False) as room:
        ends = links()
        both(*(functools.partial(side, end, list(range(40)), room / str(at)) for at, end in enumerate(ends)))
    with room_in(tmp_path, again=True) as room:
        assert not list(room.iterdir())


def test_other_ids_or_a_torn_state_do_not_go_on(tmp_path, ordered, links, both, side):
    ends = links()
    both(*(functools.partial(side, end, list(range(40)), tmp_path / str(at)) for at, end in enumerate(ends)))
    with pytest.raises(UsageError, match=r"with other ids than the table has now.*--again"):
        Kept(tmp_path / "0", ordered(range(41)))
    for content in (b"", b"{}", b"[]", b'{"ids": 1}', b"[" * 100_000):
        (tmp_path / "0" / STATE).write_bytes(content)
        with pytest.raises(StorageError, match=r"can't be read.*--again"):
            Kept(tmp_path / "0", ordered(range(40)))


def test_a_chunk_that_was_cut_short_was_not_there(tmp_path, ordered):
    own = ordered(range(40))
    kept = Kept(tmp_path, own)
    kept.begin(cap=100, minimum=0, nonce="00" * 16, key="00" * 32, peer_nonce="11" * 16, peer_count=20)
    assert "00" * 32 not in repr(kept.state)
    (tmp_path / "answered").write_bytes(bytes(16 * 20 - 1))
    (tmp_path / "received").write_bytes(bytes(16 * (3 * CHUNK + 2) + 5))
    assert kept.standing() == (2 * CHUNK, 3 * CHUNK)
    stock = kept.stock()
    assert (stock.answered, stock.received) == (2 * CHUNK, 3 * CHUNK)
    stock.answer(np.zeros((6, 16), np.uint8))
    assert stock.answered == 20
    assert (tmp_path / "answered").stat().st_size == 16 * 20
    stock.close()
    with pytest.raises(LinkError):
        stock.answer(np.zeros((1, 16), np.uint8))


def test_a_link_that_was_given_up_keeps_nothing_more(tmp_path, ordered):
    """A thread of a broken link that is still at work must not write where a new link goes on."""
    kept = Kept(tmp_path, ordered(range(40)))
    kept.begin(cap=100, minimum=0, nonce="00" * 16, key="00" * 32, peer_nonce="11" * 16, peer_count=20)
    old = kept.stock()
    old.close()
    new = kept.stock()
    with pytest.raises(LinkError):
        old.receive(np.ones((CHUNK, 16), np.uint8))
    assert new.received == 0
    new.close()


def test_the_order_is_drawn_by_the_key_alone_and_has_every_id_once(tmp_path, ordered):
    """It has no relation to that of the ids: the correlation is within 4.4 / sqrt(n). A false alarm has 1e-5."""
    own, orders = ordered(range(3000)), []
    for key in (b"\1" * 32, b"\1" * 32, b"\2" * 32):
        kept = Kept(tmp_path, own)
        kept.begin(cap=9000, minimum=0, nonce="00" * 16, key=key.hex(), peer_nonce="11" * 16, peer_count=20)
        stock = kept.stock()
        sent = np.concatenate(list(stock.hashes(0)))
        assert np.array_equal(np.concatenate(list(stock.hashes(5 * CHUNK))), sent[5 * CHUNK :])
        stock.close()
        orders.append(byte_order(sent))
    assert np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
    for order in orders:
        assert np.array_equal(np.sort(order), np.arange(3000))
        assert abs(np.corrcoef(order, np.arange(3000))[0, 1]) < 4.4 / np.sqrt(3000)


@pytest.mark.parametrize("count", [0, 1, 500])
def test_records_come_back_part_by_part_in_their_order(count, tmp_path):
    draw = np.random.default_rng(count)
    records = draw.integers(0, 256, (count, 5), np.uint8)
    scattered = Parts(tmp_path, "some", 5)
    for at in range(0, count, 9):
        scattered.add(records[at : at + 9], records[at : at + 9, 2])
    assert sum(scattered.size(part) for part in range(256)) == count
    expected = records[np.argsort(records[:, 2], kind="stable")]
    assert np.array_equal(np.concatenate(list(scattered)), expected)
    assert not list(tmp_path.iterdir())


def test_products_that_are_all_alike_do_not_fill_the_memory(tmp_path, ordered, monkeypatch):
    """A peer that does not multiply could have all of them in one part."""
    monkeypatch.setattr(kept_module, "_SLACK", 100)
    kept = Kept(tmp_path, ordered(range(3000)))
    kept.begin(cap=9000, minimum=0, nonce="00" * 16, key="00" * 32, peer_nonce="11" * 16, peer_count=3000)
    for name in ("answered", "received"):
        other = {"answered": "received", "received": "answered"}[name]
        alike, fair = np.zeros((3000, 16), np.uint8), np.random.default_rng(1).integers(0, 256, (3000, 16), np.uint8)
        (tmp_path / name).write_bytes(alike.tobytes())
        (tmp_path / other).write_bytes(fair.tobytes())
        stock = kept.stock()
        stock.close()
        with pytest.raises(RefusedError, match="3000 of 3000 products of clinic are alike"):
            stock.matches("clinic")


def test_a_state_names_all_that_must_stay(tmp_path, ordered):
    kept = Kept(tmp_path, ordered(range(4)))
    kept.begin(cap=9, minimum=0, nonce="00" * 16, key="00" * 32, peer_nonce="11" * 16, peer_count=3)
    fields = json.loads((tmp_path / STATE).read_text())
    assert set(fields) == {"ids", "cap", "minimum", "nonce", "key", "peer_nonce", "peer_count"}
    assert Kept(tmp_path, ordered(range(4))).state == kept.state
