"""Certificates: whose they are, and what is refused with words that help."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from tacit.errors import DataError, UsageError
from tacit.wire.certificates import MOST_DAYS, create, fingerprint, read

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)


def test_a_new_certificate_says_whose_it_is_and_how_long():
    identity = create("airport", days=10, now=NOW)
    found = read(identity.cert_pem, now=NOW)
    assert (identity.name, found.name) == ("airport", "airport")
    assert found.not_before <= NOW
    assert found.not_after == NOW + timedelta(days=10)
    assert create("airport").cert_pem != identity.cert_pem


def test_a_fingerprint_can_be_read_out():
    identity = create("a")
    groups = fingerprint(identity.cert_pem).split(":")
    assert [len(group) for group in groups] == [4] * 16
    whole = x509.load_pem_x509_certificate(identity.cert_pem).fingerprint(hashes.SHA256()).hex()
    assert "".join(groups) == whole


def test_the_private_key_is_not_shown():
    identity = create("airport")
    assert b"PRIVATE KEY" in identity.key_pem
    assert "PRIVATE" not in repr(identity)
    assert "PRIVATE" not in str(identity)


def test_a_certificate_can_not_sign_others():
    loaded = x509.load_pem_x509_certificate(create("airport").cert_pem)
    assert not loaded.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not loaded.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


@pytest.mark.parametrize("name", ["", "Airport", "a" * 64, "air port", "air.port", "../x", "ä", "-a", "a-", "a\n"])
def test_other_names_are_refused(name):
    with pytest.raises(UsageError, match="can't be a party's name: use 1 to 63"):
        create(name)


def test_no_days_are_refused():
    with pytest.raises(UsageError, match="at least one day"):
        create("a", days=0)


def test_dates_that_do_not_fit_say_what_to_do():
    pem = create("airport", days=10, now=NOW).cert_pem
    with pytest.raises(DataError, match=r"airport expired on 2030-05-11 12:00 UTC: make a new one"):
        read(pem, now=NOW + timedelta(days=11))
    with pytest.raises(DataError, match=r"valid from 2030-05-01 11:00 UTC on, and the clock .* 2030-04-30 .*clocks"):
        read(pem, now=NOW - timedelta(days=1))
    assert read(pem, now=NOW + timedelta(days=11), dates=False).name == "airport"


def signed(
    key, names=("airport",), *, signer=None, issuer="airport", hash_with=hashes.SHA256, days=3, ca=False, signs=False
):
    """A certificate that is one of ours but for what is asked otherwise; None leaves an extension out."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "airport")]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=days))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False)
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    if signs is not None:
        usage = x509.KeyUsage(True, False, False, False, False, signs, False, False, False)
        builder = builder.add_extension(usage, critical=True)
    return builder.sign(signer or key, hash_with and hash_with()).public_bytes(serialization.Encoding.PEM)


def test_what_is_no_certificate_to_pin_is_refused():
    identity, curve = create("airport"), ec.generate_private_key(ec.SECP256R1())
    another = ec.generate_private_key(ec.SECP256R1())
    cases = [
        (identity.key_pem, "this is a private key: .* ask the peer for its .crt"),
        (identity.cert_pem + identity.key_pem, "this is a private key"),
        (identity.cert_pem + create("b").cert_pem, "2 certificates in one file"),
        (b"", "no certificate in PEM form"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no certificate in PEM form"),
        (b"x" * 100_000, "100000 bytes are no certificate"),
        (signed(rsa.generate_private_key(65537, 2048)), "not on the curve P-256"),
        (signed(ed25519.Ed25519PrivateKey.generate(), hash_with=None), "not on the curve P-256"),
        (signed(ec.generate_private_key(ec.SECP384R1())), "not on the curve P-256"),
        (signed(curve, issuer="Some CA"), r"signed by another \(CN=Some CA\)"),
        (signed(curve, signer=another), "signed by another key than its own"),
        (signed(curve, ca=True, signs=True), "could sign others"),
        (signed(curve, ca=True), "could sign others"),
        (signed(curve, signs=True), "could sign others"),
        (signed(curve, ca=None), "could sign others"),
        (signed(curve, signs=None), "could sign others"),
        (signed(curve, days=MOST_DAYS + 1), f"valid for 1101 days, and {MOST_DAYS} are the most"),
        (signed(curve, days=270 * 365), "valid for 98550 days"),
        (signed(curve, []), "does not name one party"),
        (signed(curve, ["a", "b"]), "does not name one party"),
        (signed(curve, ["www.example.com"]), "does not name one party"),
    ]
    assert read(signed(curve), now=NOW).name == "airport"
    for pem, words in cases:
        with pytest.raises(DataError, match=words):
            read(pem, now=NOW)


def test_what_can_be_made_can_be_trusted():
    assert read(create("airport", days=MOST_DAYS).cert_pem).name == "airport"
    with pytest.raises(UsageError, match=f"at least one day, and for {MOST_DAYS} at most"):
        create("a", days=MOST_DAYS + 1)
