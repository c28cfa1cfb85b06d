"""Nobody chooses the seed: commitments first, then what they hide."""

import hashlib
import hmac

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.align.seed import as_features, as_label, check, commit, joint_seed, new_nonce, rows_digest
from tacit.errors import LinkError, ProtocolError, RefusedError, UsageError
from tacit.wire.codec import control

PATIENCE = 10.0
ONE, TWO, THREE = (bytes([n]) * 32 for n in (1, 2, 3))
NONCES = st.binary(min_size=32, max_size=32)


# --- the pure parts --------------------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.text(max_size=5), NONCES, max_size=4), st.dictionaries(st.text(max_size=5), NONCES, max_size=4)
)
def test_seeds_are_equal_where_names_and_nonces_are(one, two):
    seeds = [joint_seed(nonces) for nonces in (one, two)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert (seeds[0] == seeds[1]) == (one == two)
    assert joint_seed(dict(reversed(list(one.items())))) == seeds[0]


def test_names_and_nonces_do_not_run_into_each_other():
    shifted = {"ab": ONE}, {"a": b"b" + ONE[1:]}, {"a": ONE, "b": TWO}, {"b": ONE, "a": TWO}
    assert len({joint_seed(nonces) for nonces in shifted}) == 4


@given(st.text(max_size=8), st.text(max_size=8), NONCES, NONCES)
def test_a_commitment_holds_for_its_party_and_nonce_alone(name, other, nonce, another):
    commitment = commit(name, nonce)
    check(name, commitment, nonce)
    for who, what in ((other, nonce), (name, another)):
        if (who, what) != (name, nonce):
            with pytest.raises(RefusedError, match="revealed another nonce than it had committed to") as caught:
                check(who, commitment, what)
            assert caught.value.field == "seed"


def test_nonces_are_new_and_of_one_size():
    assert len({new_nonce() for _ in range(20)}) == 20
    with pytest.raises(UsageError, match="a nonce of 5 bytes"):
        commit("a", b"short")


def test_a_digest_of_rows_sees_key_order_and_number():
    hashes = np.random.default_rng(1).integers(0, 256, (70_000, 32), dtype=np.uint8)
    whole = rows_digest(ONE, hashes)
    assert whole == hmac.new(ONE, (70_000).to_bytes(8, "big") + hashes.tobytes(), hashlib.sha256).digest()
    others = [rows_digest(TWO, hashes), rows_digest(ONE, hashes[::-1]), rows_digest(ONE, hashes[:-1])]
    assert len({whole, *others}) == 4


# --- between parties -------------------------------------------------------------------------------------------------


def test_two_parties_agree_and_the_seed_needs_both(links, both):
    def run(one, two):
        label, features = links("label", "features")
        return both(
            lambda: as_label({"features": label}, "label", one, patience=PATIENCE),
            lambda: as_features(features, "features", two, patience=PATIENCE),
        )

    first, second = run(ONE, TWO)
    assert first == second
    assert first.seed == joint_seed({"label": ONE, "features": TWO})
    assert first.commitments == {"label": commit("label", ONE), "features": commit("features", TWO)}
    assert len(first.key) == 32
    assert first.key.hex() not in repr(first)
    assert len({run(*nonces)[0].seed for nonces in ((ONE, THREE), (THREE, TWO), (ONE, TWO), (TWO, ONE))}) == 4


def test_three_parties_agree_and_nobody_reveals_before_all_have_committed(links, both):
    ends = {name: links("label", name) for name in ("one", "two")}
    results = both(
        lambda: as_label({name: pair[0] for name, pair in ends.items()}, "label", ONE, patience=PATIENCE),
        lambda: as_features(ends["one"][1], "one", TWO, patience=PATIENCE),
        lambda: as_features(ends["two"][1], "two", THREE, patience=PATIENCE),
    )
    assert results[0] == results[1] == results[2]
    assert results[0].seed == joint_seed({"label": ONE, "one": TWO, "two": THREE})
    for pair in ends.values():
        assert [message.kind for message in pair[0].sent] == ["commitment", "reveal"]
        assert [message.kind for message in pair[1].sent] == ["commitment", "reveal"]
        first = pair[0].sent[0].payload.numpy().tobytes().decode()
        assert all(commit(name, nonce).hex() in first for name, nonce in (("one", TWO), ("two", THREE), ("label", ONE)))
        assert not any(nonce.hex() in first for nonce in (ONE, TWO, THREE))


def test_the_label_party_waits_for_every_commitment(links, both):
    silent, loud = links("label", "silent"), links("label", "loud")

    def label():
        return as_label({"loud": loud[0], "silent": silent[0]}, "label", ONE, patience=0.4)

    def features():
        return as_features(loud[1], "loud", TWO, patience=1.0)

    errors = both(label, features)
    assert "silent sent no commitment 0 for 0.4 s" in str(errors[0])
    assert isinstance(errors[1], LinkError)
    assert [message.kind for message in loud[0].sent] == []
    assert [message.kind for message in loud[1].sent] == ["commitment"]


def from_features(reveal, name="features", commitment=None):
    """What a feature party says."""
    shown = commitment or commit("features", TWO).hex()
    return [
        control("commitment", 0, {"name": name, "commitment": shown}),
        control("reveal", 0, {"name": name, "nonce": reveal}),
    ]


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        (from_features(THREE.hex()), "seed"),
        (from_features(TWO.hex(), name="other"), "name"),
        (from_features(TWO.hex(), commitment="00"), "commitment"),
        (from_features("zz" * 32), "nonce"),
    ],
)
def test_a_feature_party_that_changes_its_mind_is_refused(messages, field, links):
    label, features = links("label", "features")
    for message in messages:
        features.send(message)
    with pytest.raises(RefusedError) as caught:
        as_label({"features": label}, "label", ONE, patience=PATIENCE)
    assert caught.value.field == field
    assert not any(message.kind == "reveal" for message in label.sent)


def from_label(commitments, nonces):
    return [
        control("commitment", 1, {"commitments": commitments}),
        control("reveal", 1, {"nonces": nonces}),
    ]


LABEL = ["label", commit("label", ONE).hex()]
OWN = ["features", commit("features", TWO).hex()]


@pytest.mark.parametrize(
    ("commitments", "nonces", "match"),
    [
        ([LABEL, OWN], [["label", THREE.hex()], ["features", TWO.hex()]], "label revealed another nonce"),
        ([LABEL, OWN], [["label", ONE.hex()], ["features", THREE.hex()]], "features revealed another nonce"),
        ([LABEL, OWN], [["features", TWO.hex()]], "other parties than had committed"),
        ([LABEL], [], "lack its own or this party's"),
        ([OWN], [], "lack its own or this party's"),
        ([LABEL, ["features", "00" * 32]], [], "lack its own or this party's"),
        ([LABEL, LABEL], [], "not pairs of different names"),
        ([LABEL, [1, 2]], [], "not pairs of different names"),
        ([LABEL, "features"], [], "not pairs of different names"),
    ],
)
def test_a_label_party_that_changes_what_it_passes_on_is_refused(commitments, nonces, match, links):
    label, features = links("label", "features")
    for message in from_label(commitments, nonces):
        label.send(message)
    with pytest.raises(RefusedError, match=match):
        as_features(features, "features", TWO, patience=PATIENCE)
    if not nonces:
        assert not any(message.kind == "reveal" for message in features.sent)


def test_a_nonce_before_its_time(links):
    label, features = links("label", "features")
    features.send(from_features(TWO.hex())[1])
    with pytest.raises(ProtocolError, match="expected commitment 0 from features, got reveal 0"):
        as_label({"features": label}, "label", ONE, patience=PATIENCE)


def test_two_parties_of_one_name(links):
    with pytest.raises(UsageError, match="this party's own name"):
        as_label({"label": links()[0]}, "label", ONE)
