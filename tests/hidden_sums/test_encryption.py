"""Encrypted labels: what is proven of them, and what a label party tries that marks rows."""

from dataclasses import fields, replace

import numpy as np
import pytest

from tacit.errors import LabelsError
from tacit.hidden_sums import _library, encryption
from tacit.hidden_sums import points as p
from tacit.hidden_sums.encryption import EncryptedLabels, check_labels, decrypt_sums, encrypt, secret_key
from tacit.hidden_sums.scalars import ORDER, ints_of, scalars_of
from tests.hidden_sums.sides import FEATURE_SECRET, LABEL_SECRET, some_labels

CONTEXT = b"context"


def accepted(made, context=CONTEXT):
    return check_labels(made, FEATURE_SECRET, context) is not None


@pytest.fixture(name="made", scope="module")
def _made():
    return encrypt(some_labels(12), LABEL_SECRET, CONTEXT)


def test_labels_are_accepted_and_decrypt_to_what_they_were(made):
    a, b = check_labels(made, FEATURE_SECRET, CONTEXT)
    sk = secret_key(LABEL_SECRET, CONTEXT)
    labels = some_labels(12)
    assert decrypt_sums(a, b, sk, 2).tolist() == labels.reshape(6, 2).sum(axis=1).tolist()
    assert decrypt_sums(a, b, sk, 5).tolist() == labels[:10].reshape(2, 5).sum(axis=1).tolist()


@pytest.mark.parametrize("labels", [[0], [1], [0, 0, 0], [1, 1, 1]])
def test_one_row_and_one_class_are_accepted(labels):
    assert accepted(encrypt(np.array(labels), LABEL_SECRET, CONTEXT))


def test_the_same_again_and_nothing_in_common_with_another_context_or_other_labels(made):
    again = encrypt(some_labels(12), LABEL_SECRET, CONTEXT)
    assert all(np.array_equal(getattr(made, f.name), getattr(again, f.name)) for f in fields(EncryptedLabels))
    other = encrypt(some_labels(12), LABEL_SECRET, b"another")
    assert not (other.a == made.a).all(axis=1).any()
    assert not np.array_equal(other.pk, made.pk)
    changed = some_labels(12)
    changed[0] = 1 - changed[0]
    other = encrypt(changed, LABEL_SECRET, CONTEXT)
    assert not (other.a == made.a).all(axis=1).any()


def test_a_proof_of_one_context_is_none_in_another(made):
    assert not accepted(made, b"another")


@pytest.mark.parametrize("name", [f.name for f in fields(EncryptedLabels)])
def test_every_part_counts(made, name):
    value = getattr(made, name).copy()
    kind = 33 if value.shape[-1] == 33 else 32
    flat = value.reshape(-1, kind)
    for place in {0, len(flat) // 2, len(flat) - 1}:
        other = flat.copy()
        if kind == 33:
            other[place] = p.encode(p.total(np.concatenate([p.decode(flat[place : place + 1]), p.base()])))[0]
        else:
            other[place] = scalars_of([(ints_of(flat[place : place + 1])[0] + 1) % ORDER])[0]
        assert not accepted(replace(made, **{name: other.reshape(value.shape)}))


def test_rows_can_not_change_places(made):
    order = np.arange(12)[::-1]
    moved = replace(made, a=made.a[order], b=made.b[order], t=made.t[:, order], c0=made.c0[order], s=made.s[:, order])
    assert not accepted(moved)


@pytest.mark.parametrize("mark", [2, 7, ORDER - 1])
def test_what_is_no_label_is_refused(monkeypatch, mark):
    # the cheat is as strong as it gets without forging: an honest proof of 1 about a ciphertext of another number
    marks = np.stack([np.zeros(32, np.uint8), scalars_of([mark])[0]])
    monkeypatch.setattr(encryption, "_MARKS", marks)
    labels = np.zeros(6, int)
    labels[3] = 1
    assert not accepted(encrypt(labels, LABEL_SECRET, CONTEXT))


def test_a_row_under_another_key_is_refused(made, monkeypatch):
    keys = np.repeat(secret_key(LABEL_SECRET, CONTEXT), 12, axis=0)
    keys[5] = secret_key(LABEL_SECRET, b"another key")[0]
    honest = EncryptedLabels.challenge
    with monkeypatch.context() as patch:  # all else as an honest party does it, with the key that is shown in the hash
        patch.setattr(encryption, "secret_key", lambda *_: keys)
        patch.setattr(EncryptedLabels, "challenge", lambda self, of: honest(replace(self, pk=made.pk), of))
        marked = encrypt(some_labels(12), LABEL_SECRET, CONTEXT)
        keys[5] = keys[0]
        unmarked = encrypt(some_labels(12), LABEL_SECRET, CONTEXT)
    assert not accepted(replace(marked, pk=made.pk))
    assert accepted(replace(unmarked, pk=made.pk))


def test_what_is_no_point_or_scalar_is_refused(made):
    wrong = made.a.copy()
    wrong[0] = 0
    assert not accepted(replace(made, a=wrong))
    large = made.c0.copy()
    large[0] = 255
    assert not accepted(replace(made, c0=large))


@pytest.mark.parametrize("labels", [[0, 2], [-1, 0], [[0, 1]], [], [0.0, 1.0]])
def test_labels_are_zeros_and_ones(labels):
    with pytest.raises(LabelsError):
        encrypt(np.array(labels), LABEL_SECRET, CONTEXT)


def test_both_labels_cost_the_same_calls(monkeypatch):
    calls = []
    loaded = _library.library()
    lib = loaded.lib

    class Counting:
        def __getattr__(self, name):
            calls.append(name)
            return getattr(lib, name)

    def counted(labels):
        calls.clear()
        encrypt(np.array(labels), LABEL_SECRET, CONTEXT)
        return list(calls)

    monkeypatch.setattr(loaded, "lib", Counting())
    zeros, ones, mixed = counted([0, 0, 0]), counted([1, 1, 1]), counted([0, 1, 0])
    assert zeros == ones == mixed
    assert len(zeros) > 10
