"""A new certificate: the old pair works until the switch, the new one after it, and there is never none."""

import threading

import pytest

from tacit.company import rotation
from tacit.company.folder import Folder
from tacit.errors import RefusedError, UsageError
from tacit.wire import certificates


def fingerprint(folder):
    return certificates.fingerprint(Folder(folder.path).identity.cert_pem)


def align(*folders):
    """Both at once; what each found, or why it gave up."""
    found = {}

    def one(folder):
        try:
            found[folder.path.name] = Folder(folder.path).align().count
        except RefusedError as error:
            found[folder.path.name] = error

    threads = [threading.Thread(target=one, args=(folder,), daemon=True) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def test_a_prepared_certificate_changes_nothing_yet(companies):
    airline, _ = companies
    before, secret = fingerprint(airline), airline.secret
    made = rotation.prepare(airline)
    assert made.name == "airline"
    assert fingerprint(airline) == before != made.fingerprint
    assert (airline.path / "keys" / "next.key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match=r"tacit rotate --now"):
        rotation.prepare(airline)
    assert rotation.switch(airline).fingerprint == made.fingerprint == fingerprint(airline)
    assert Folder(airline.path).secret == secret
    assert sorted(path.name for path in airline.path.glob("*.crt")) == ["airline.crt"]
    assert sorted(path.name for path in (airline.path / "keys").iterdir()) == ["party.key", "secret"]
    with pytest.raises(UsageError, match="make one with `tacit rotate` first"):
        rotation.switch(airline)


def test_parties_meet_again_once_the_peer_trusts_the_new_one(companies):
    airline, airport = companies
    rotation.prepare(airport)
    sent = rotation.next_certificate(airport).read_bytes()
    rotation.switch(airport)
    (airline.path / "sent.crt").write_bytes(sent)
    with pytest.raises(UsageError, match="--replace"):
        airline.trust(airline.path / "sent.crt")
    airline.trust(airline.path / "sent.crt", replace=True)
    assert align(airline, airport) == {"airline": 60, "airport": 60}


def test_a_switch_that_was_cut_short_is_whole_all_the_same(companies):
    airline, _ = companies
    made = rotation.prepare(airline)
    (airline.path / "keys" / "next.key").replace(airline.path / "keys" / "party.key")  # and there it stopped
    assert fingerprint(airline) == made.fingerprint
    assert rotation.switch(airline.path).fingerprint == made.fingerprint
    assert sorted(path.name for path in airline.path.glob("*.crt")) == ["airline.crt"]


def test_a_preparation_that_was_cut_short_is_made_anew(companies):
    airline, _ = companies
    rotation.prepare(airline)
    (airline.path / "keys" / "next.key").unlink()
    with pytest.raises(UsageError, match="tacit rotate"):
        rotation.switch(airline)
    made = rotation.prepare(airline)
    assert rotation.switch(airline).fingerprint == made.fingerprint


def test_a_pair_that_does_not_belong_together_is_refused(companies):
    airline, _ = companies
    rotation.prepare(airline)
    rotation.next_certificate(airline).write_bytes(certificates.create("airline").cert_pem)
    before = fingerprint(airline)
    with pytest.raises(UsageError, match="does not belong to"):
        rotation.switch(airline)
    assert fingerprint(airline) == before
