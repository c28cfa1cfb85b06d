"""Two parties find what they have in common, tell nothing else, and do not put up with a peer that cheats."""

import random
import secrets

import numpy as np
import pytest
import torch

from benchmarks._memory_links import links as wire_links
from tacit.align import psi
from tacit.align.curve import hash_to_points
from tacit.align.psi import Matched, common, intersect, recv_mask, send_mask
from tacit.errors import LinkError, ProtocolError, RefusedError, UsageError
from tacit.wire.codec import CONTROL, AtMost, Limit

PATIENCE = 20.0


def points_sent(link, kind="points"):
    return [row.numpy().tobytes() for message in link.sent if message.kind == kind for row in message.payload]


# --- what comes out --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (range(0), range(0)),
        (range(5), range(0)),
        (range(1), range(1)),
        (range(10), range(10, 20)),
        (range(50), range(50)),
        (range(300), range(250, 280)),
        (range(3, 1000, 3), range(0, 1000, 5)),
        (range(5000), range(4990, 7000)),
    ],
)
def test_both_find_what_the_sets_have_in_common_in_one_order(one, two, align):
    one, two = list(one), list(two)
    random.Random(1).shuffle(one)
    random.Random(2).shuffle(two)
    (first, seen), (second, _), _ = align(one, two)
    assert first == second
    assert set(first) == set(one) & set(two)
    assert len(first) == len(set(first))
    assert seen == len(two)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("seed", range(8))
def test_sets_of_every_size_in_many_chunks_through_a_narrow_pipe(seed, align):
    draw = random.Random(seed)
    one, two = (draw.sample(range(150), draw.randrange(100)) for _ in range(2))
    (first, _), (second, _), _ = align(one, two)
    assert first == second
    assert set(first) == set(one) & set(two)


def test_everything_passes_the_codec_under_exact_limits(both, party):
    limits = {
        "commitment": CONTROL,
        "points": Limit(torch.uint8, (AtMost(psi.CHUNK), 32)),
        "matches": Limit(torch.uint8, (AtMost(psi.CHUNK), psi.SHORT)),
    }
    one, two = wire_links(limits, names=("label", "features"))
    first, second = both(lambda: party(one, list(range(400))), lambda: party(two, list(range(300, 900))))
    assert first[0] == second[0]
    assert set(first[0]) == set(range(300, 400))


@pytest.mark.usefixtures("small_chunks")
def test_progress_counts_every_multiplication_once(links, both, party):
    one, two = links()
    seen = []
    ids = list(range(40))
    both(
        lambda: party(one, ids, progress=lambda done, total: seen.append((done, total))),
        lambda: party(two, ids[:30]),
    )
    assert {total for _, total in seen} == {70}
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert len(seen) == 6 + 5  # chunks of 7
    assert seen[-1] == (70, 70)


def test_the_order_stays_common_when_rows_are_left_out(align):
    (first, _), _, _ = align(list(range(100)), list(range(100)))
    (second, _), _, _ = align(list(range(100)), list(range(0, 100, 2)))
    assert second == [number for number in first if number % 2 == 0]


# --- what the messages tell ------------------------------------------------------------------------------------------


def test_nothing_sent_is_an_id_or_its_bare_point(align, hashes):
    *_, (link, _) = align(list(range(60)), list(range(30, 90)))
    bare = hash_to_points(hashes(range(60)), domain=b"tacit psi point 1")
    known = {row.tobytes() for row in (*hashes(range(60)), *bare)}
    everything = b"".join(message.payload.numpy().tobytes() for message in link.sent)
    assert not any(each in everything or each[:16] in everything for each in known)


def test_two_runs_have_no_point_in_common(align):
    runs = [align(list(range(40)), list(range(40)))[-1][0] for _ in range(2)]
    one, two = ({*points_sent(link), *points_sent(link, "matches")} for link in runs)
    assert len(one) == 80
    assert not one & two


def test_points_do_not_go_out_in_the_order_of_the_rows(align, hashes, engine):
    """The key is known here, so the order can be told: its correlation with the rows is within 4.4 / sqrt(n).

    A false alarm has a chance of 1e-5.
    """
    count, drawn = 800, []

    def recorded(size):
        value = secrets.token_bytes(size)
        drawn.append(value)
        return value

    _, _, (link, _) = align(list(range(count)), [5], random=recorded)
    sent = points_sent(link)
    for key in (value for value in drawn if len(value) == 32):
        places = {
            row.tobytes(): at
            for at, row in enumerate(engine.blind(hashes(range(count)), key, domain=b"tacit psi point 1"))
        }
        if sent[0] in places:
            break
    order = np.array([places[point] for point in sent])
    assert sorted(order) == list(range(count))
    assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 4.4 / np.sqrt(count)


def test_products_come_back_in_the_order_of_the_points_and_shortened(align):
    *_, (one, two) = align(list(range(20)), list(range(20)))
    assert {message.payload.shape[1] for message in one.sent if message.kind == "points"} == {32}
    assert {message.payload.shape[1] for message in two.sent if message.kind == "matches"} == {16}
    assert len(points_sent(two, "matches")) == len(points_sent(one))


# --- what the contract forbids ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two", "limits", "field"),
    [
        (30, 101, {"cap": 100}, "cap"),
        (30, 9, {"minimum": 10}, "minimum"),
        (9, 30, {"minimum": 10}, "minimum"),
    ],
)
def test_a_set_too_large_or_too_small_is_refused_by_both_before_any_point(one, two, limits, field, align):
    first, second, ends = align(list(range(one)), list(range(two)), **limits)
    for error in (first, second):
        assert isinstance(error, RefusedError)
        assert error.field == field
        assert "nothing was computed" in str(error)
    assert not any(points_sent(link) for link in ends)


def test_an_intersection_below_the_minimum_is_refused_by_both(align):
    first, second, _ = align(list(range(30)), list(range(25, 60)), minimum=6)
    assert [error.field for error in (first, second)] == ["minimum", "minimum"]
    assert (
        "5 ids are common with features, fewer than the 6 that the contract asks for ([alignment] smallest_set)"
        in str(first)
    )


@pytest.mark.parametrize("field", ["cap", "minimum"])
def test_two_contracts(field, links, both, party):
    one, two = links()
    limits = {"cap": 1000, "minimum": 2}
    other = {**limits, field: limits[field] + 1}
    ids = list(range(20))
    errors = both(lambda: party(one, ids, **limits), lambda: party(two, ids, **other))
    refused = [error for error in errors if isinstance(error, RefusedError)]
    assert {error.field for error in refused} == {field}
    assert "agree on one contract" in str(refused[0])


def test_limits_that_make_no_sense(party, links):
    with pytest.raises(UsageError, match="choose 0 <= minimum <= cap"):
        party(links()[0], [1], minimum=5, cap=4)


# --- more than two parties -------------------------------------------------------------------------------------------


def test_three_parties_end_with_the_same_rows_in_the_same_order(links, both, engine, hashes):
    label, first, second = list(range(0, 120)), list(range(40, 200)), list(range(0, 160, 2))
    options = {"engine": engine, "cap": 1000, "minimum": 1, "patience": PATIENCE}
    to_first, to_second = links("label", "first"), links("label", "second")

    def as_label():
        matches = [intersect(ends[0], hashes(label), **options) for ends in (to_first, to_second)]
        positions, masks = common(matches)
        for ends, mask in zip((to_first, to_second), masks, strict=True):
            send_mask(ends[0], mask)
        return [label[place] for place in positions]

    def as_peer(link, ids):
        matched = intersect(link, hashes(ids), **options)
        mask = recv_mask(link, len(matched), patience=PATIENCE)
        return [ids[place] for place in matched.positions[mask]]

    one, two, three = both(as_label, lambda: as_peer(to_first[1], first), lambda: as_peer(to_second[1], second))
    assert one == two == three
    assert set(one) == set(label) & set(first) & set(second)


def test_common_of_one_is_that_one_and_of_none_an_error():
    positions, masks = common([Matched(np.array([3, 1]), 9)])
    assert (positions.tolist(), [mask.tolist() for mask in masks]) == ([3, 1], [[True, True]])
    with pytest.raises(UsageError, match="pass one for each peer"):
        common([])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 896, 897, 2000])
def test_a_mask_comes_over_as_it_was(count, links, both):
    one, two = links()
    mask = np.random.default_rng(count).random(count) < 0.5
    _, received = both(lambda: send_mask(one, mask) or True, lambda: recv_mask(two, count, patience=PATIENCE))
    assert received.dtype == np.bool_
    assert np.array_equal(received, mask)


def test_a_mask_of_another_length(links):
    one, two = links()
    send_mask(one, np.ones(12, np.bool_))
    with pytest.raises(ProtocolError, match="a mask for more than the 10 rows"):
        recv_mask(two, 10, patience=PATIENCE)
    send_mask(one, np.ones(12, np.bool_))
    with pytest.raises(ProtocolError, match=r"matches 0 is .*\(1, 16\), expected uint8 \(2, 16\)"):
        recv_mask(two, 200, patience=PATIENCE)


# --- what was asked before -------------------------------------------------------------------------------------------


def test_a_party_may_refuse_once_it_knows_the_size_and_before_it_answers(links, both, party):
    one, two = links()

    def admit(count):
        raise RefusedError("history", f"{count} ids again")

    errors = both(lambda: party(one, list(range(30)), admit=admit), lambda: party(two, list(range(17))))
    assert isinstance(errors[0], RefusedError)
    assert str(errors[0]) == "17 ids again"
    assert isinstance(errors[1], LinkError)
    assert points_sent(one) == points_sent(one, "matches") == []


# --- a link that breaks ----------------------------------------------------------------------------------------------


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


@pytest.mark.usefixtures("small_chunks")
def test_cut_anywhere_it_is_an_error_and_begun_anew_it_is_whole_under_new_keys(links, both, party):
    one, two, points = list(range(40)), list(range(20, 65)), []
    for cut in [*range(0, 30, 3), 10**9]:
        ends = links()
        found = both(lambda ends=ends, cut=cut: party(Cut(ends[0], cut), one), lambda ends=ends: party(ends[1], two))
        points += [point for end in ends for point in points_sent(end)]
        if cut < 10**9:
            assert all(isinstance(each, LinkError) for each in found), found
    assert found[0][0] == found[1][0]
    assert sorted(found[0][0]) == list(range(20, 40))
    assert len(set(points)) == len(points) > 85, "no point goes out twice"
