"""A party's folder: what is made, what is refused, whom it trusts."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from datetime import UTC, datetime, timedelta

import pytest

from tacit.company.folder import Folder, create
from tacit.config import Contract, contract_template
from tacit.errors import TacitError, UsageError
from tacit.wire import certificates


def filled(folder: Folder) -> Folder:
    """The folder with a feature named in its settings, as a user would have done."""
    path = folder.path / "party.toml"
    path.write_text(path.read_text().replace("numeric = []", 'numeric = ["x"]'))
    return Folder(folder.path)


@pytest.fixture
def airline(tmp_path):
    return filled(create(tmp_path / "airline", role="label", mode="split"))


@pytest.fixture
def airport(tmp_path):
    return filled(create(tmp_path / "airport", role="features", mode="split"))


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def contract(**parts: str) -> Contract:
    return Contract.read(contract_template(**parts))


# --- making one ------------------------------------------------------------------------------------------------------


def test_what_is_made_is_private_and_valid(airline):
    assert mode(airline.path) == mode(airline.path / "keys") == mode(airline.path / "trusted") == 0o700
    assert mode(airline.path / "keys" / "party.key") == mode(airline.path / "keys" / "secret") == 0o600
    assert (
        airline.config.name == airline.identity.name == certificates.read(airline.identity.cert_pem).name == "airline"
    )
    assert (airline.path / "airline.crt").read_bytes() == airline.identity.cert_pem
    assert len(airline.secret) == 32
    assert airline.trusted == {}


def test_what_is_made_is_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        folder = create(tmp_path / "open", role="label", name="airline")
    finally:
        os.umask(before)
    assert mode(folder.path / "keys" / "secret") == 0o600
    assert mode(folder.path / "keys") == 0o700


def test_two_folders_share_no_secret(airline, airport):
    assert airline.secret != airport.secret
    assert airline.identity.key_pem != airport.identity.key_pem


def test_a_folder_with_data_is_fine_but_keys_are_never_overwritten(tmp_path):
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "data.parquet").write_bytes(b"x")
    folder = create(tmp_path / "bank", role="label")
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    with pytest.raises(
        UsageError, match=r"holds party\.toml, keys, trusted, runs, bank\.crt already.*never overwritten"
    ):
        create(tmp_path / "bank", role="features")
    (folder.path / "party.toml").unlink()
    with pytest.raises(UsageError, match="holds keys"):
        create(tmp_path / "bank", role="label", name="other")
    assert all(path.read_bytes() == content for path, content in before.items() if path.name != "party.toml")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"role": "label", "name": "Air Line"}, "can't be a party's name"),
        ({"role": "labels", "name": "airline"}, "no role 'labels'; there are: label, features"),
        ({"role": "label", "name": "../x"}, "can't be a party's name"),
    ],
)
def test_wrong_wishes_leave_nothing_behind(tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        create(tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be made"):
        create(tmp_path / "file" / "airline", role="label")


# --- opening one -----------------------------------------------------------------------------------------------------


def test_an_empty_folder_is_none(tmp_path):
    with pytest.raises(UsageError, match=r"is no party's folder.*tacit init"):
        Folder(tmp_path)


@pytest.mark.parametrize("name", ["party.key", "secret"])
@pytest.mark.parametrize("wrong", [0o640, 0o604, 0o620])
def test_secrets_that_others_can_read_are_refused_with_the_remedy(airline, name, wrong):
    (airline.path / "keys" / name).chmod(wrong)
    with pytest.raises(UsageError, match=rf"{name} can be read or changed by others \(mode {wrong:04o}\): chmod 600 "):
        Folder(airline.path)


@pytest.mark.parametrize("inner", ["", "keys", "trusted", "runs"])
@pytest.mark.parametrize("wrong", [0o770, 0o702])
def test_folders_that_others_can_write_are_refused(airline, inner, wrong):
    (airline.path / inner).chmod(wrong)
    with pytest.raises(UsageError, match=r"can be changed by others .*chmod go-w "):
        Folder(airline.path)


def test_a_run_that_others_can_write_is_refused(airline):
    airline.run_folder(contract(run="one")).chmod(0o770)
    with pytest.raises(UsageError, match=r"runs/one can be changed by others .*chmod go-w "):
        airline.run_folder(contract(run="one"))


@pytest.mark.parametrize("name", ["party.key", "secret"])
def test_a_lost_secret_is_named(airline, name):
    (airline.path / "keys" / name).unlink()
    with pytest.raises(UsageError, match=rf"{name} can't be read \(No such file"):
        Folder(airline.path)


def test_a_secret_of_the_wrong_length_is_not_used(airline):
    (airline.path / "keys" / "secret").write_bytes(b"short")
    with pytest.raises(UsageError, match="has 5 bytes, not 32"):
        Folder(airline.path).run_secret(b"run")


def test_another_name_in_the_settings_is_refused(airline):
    path = airline.path / "party.toml"
    path.write_text(path.read_text().replace('name = "airline"', 'name = "airways"'))
    with pytest.raises(UsageError, match="says name = 'airways', but the certificate here is that of 'airline'"):
        _ = Folder(airline.path).config


def test_a_key_without_its_certificate(airline, airport):
    (airline.path / "airline.crt").write_bytes(airport.identity.cert_pem)
    with pytest.raises(UsageError, match=r"no certificate in .* belongs to keys/party\.key"):
        _ = Folder(airline.path).identity


def test_a_peers_certificate_beside_the_own_one_does_no_harm(airline, airport):
    (airline.path / "aaa.crt").write_bytes(airport.identity.cert_pem)
    (airline.path / "aab.crt").write_bytes(b"no certificate")
    assert Folder(airline.path).identity.name == "airline"


def test_a_missing_contract_says_how_to_get_one(airline):
    with pytest.raises(UsageError, match=r"contract\.toml is missing.*tacit contract --new"):
        _ = airline.contract
    (airline.path / "contract.toml").write_text(contract_template())
    assert airline.contract.run == "run-1"


def test_a_draft_names_this_party_and_those_it_trusts(airline, airport):
    airline.trust(airport.path / "airport.crt")
    airport.trust(airline.path / "airline.crt")
    assert airline.draft_contract() == airline.path / "contract.toml"
    airport.draft_contract()
    assert airline.one_shot.digest == airport.one_shot.digest
    airline.check_pair(airport.one_shot)
    (airline.path / "contract.toml").unlink()
    airline.draft_contract("split")
    assert Folder(airline.path).contract.label_party == airline.config.name
    with pytest.raises(UsageError, match=r"contract\.toml exists already"):
        airline.draft_contract()


def test_repr_tells_no_secret(airline):
    assert repr(airline) == f"Folder({str(airline.path)!r})"


# --- secrets of runs -------------------------------------------------------------------------------------------------


def test_each_run_has_a_secret_of_its_own(airline):
    assert airline.run_secret(b"a") == hmac.new(airline.secret, b"a", hashlib.sha256).digest()
    assert airline.run_secret(b"a") != airline.run_secret(b"b")


def test_each_run_has_a_folder_of_its_own(airline):
    first, second = airline.run_folder(contract(run="one")), airline.run_folder(contract(run="two"))
    assert first != second
    assert mode(first) == 0o700
    assert airline.run_folder(contract(run="one")) == first


def test_data_are_beside_the_settings(airline):
    assert airline.data == airline.path / "data.parquet"


# --- trust -----------------------------------------------------------------------------------------------------------


def test_trust_pins_the_certificate(airline, airport):
    found = airline.trust(airport.path / "airport.crt")
    assert (found.name, found.fingerprint) == ("airport", certificates.fingerprint(airport.identity.cert_pem))
    assert Folder(airline.path).trusted == {"airport": airport.identity.cert_pem}
    assert airline.trust(airport.path / "airport.crt") == found, "once more is no harm"


def test_trust_works_before_the_settings_are_filled_in(tmp_path, airline):
    fresh = create(tmp_path / "fresh", role="features")
    assert fresh.trust(airline.path / "airline.crt").name == "airline"


def test_another_certificate_under_a_known_name_needs_a_word(airline, airport, tmp_path):
    airline.trust(airport.path / "airport.crt")
    (tmp_path / "new.crt").write_bytes(certificates.create("airport").cert_pem)
    with pytest.raises(UsageError, match=r"another certificate is pinned for 'airport'.*--replace"):
        airline.trust(tmp_path / "new.crt")
    assert airline.trusted["airport"] == airport.identity.cert_pem
    airline.trust(tmp_path / "new.crt", replace=True)
    assert airline.trusted["airport"] == (tmp_path / "new.crt").read_bytes()
    assert [path.name for path in (airline.path / "trusted").iterdir()] == ["airport.crt"]


def test_nobody_trusts_itself(airline, tmp_path):
    with pytest.raises(UsageError, match="this party's own certificate"):
        airline.trust(airline.path / "airline.crt")
    (tmp_path / "twin.crt").write_bytes(certificates.create("airline").cert_pem)
    with pytest.raises(UsageError, match="with this party's own name, 'airline'"):
        airline.trust(tmp_path / "twin.crt", replace=True)


def test_what_is_no_certificate_is_not_pinned(airline, airport, tmp_path):
    old = certificates.create("old", now=datetime.now(UTC) - timedelta(days=900))
    for name, content in {"text.crt": b"hello", "key.crt": airport.identity.key_pem, "old.crt": old.cert_pem}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TacitError, match=name):
            airline.trust(tmp_path / name)
    with pytest.raises(UsageError, match=r"missing\.crt can't be read"):
        airline.trust(tmp_path / "missing.crt")
    assert airline.trusted == {}


def test_a_pinned_file_under_another_name_is_refused(airline, airport):
    (airline.path / "trusted" / "weather.crt").write_bytes(airport.identity.cert_pem)
    with pytest.raises(UsageError, match=r"weather\.crt is the certificate of 'airport'"):
        _ = airline.trusted


# --- folder and contract ---------------------------------------------------------------------------------------------


def test_a_pair_that_fits(airline, airport):
    airline.trust(airport.path / "airport.crt")
    airport.trust(airline.path / "airline.crt")
    for folder, peers in ((airline, ("airport",)), (airport, ("airline",))):
        folder.check_pair(contract())
        assert folder.peers(contract()) == peers


def test_a_party_that_is_not_in_the_contract_or_in_another_role(airline):
    for parts in ({"label_party": "bank"}, {"label_party": "bank", "feature_parties": ["airline"]}):
        with pytest.raises(UsageError, match=r"'airline' with the role 'label', and the contract has none such"):
            airline.check_pair(contract(**parts))


def test_all_peers_must_be_trusted(airline, airport):
    three = contract(feature_parties=["airport", "weather", "radar"])
    airline.trust(airport.path / "airport.crt")
    with pytest.raises(UsageError, match=r"no certificate of radar, weather is trusted yet.*tacit trust radar\.crt"):
        airline.check_pair(three)
    with pytest.raises(UsageError, match="no certificate of airline"):
        airport.check_pair(three)


def test_an_expired_peer_is_named(airline):
    old = certificates.create("airport", now=datetime.now(UTC) - timedelta(days=900))
    (airline.path / "trusted" / "airport.crt").write_bytes(old.cert_pem)
    with pytest.raises(TacitError, match=r"trusted/airport\.crt: .*expired"):
        airline.check_pair(contract())


def test_a_protection_below_the_minimum_is_refused(airline, airport):
    airline.trust(airport.path / "airport.crt")
    strict = Contract.read(contract_template().replace("leak_auc = 0.6", "leak_auc = 0.51"))
    with pytest.raises(UsageError, match=r"minimum is matched\(leak_auc=0\.51, .*, and matched is weaker in leak_auc"):
        airline.check_pair(strict)
