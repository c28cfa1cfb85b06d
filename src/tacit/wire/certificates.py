"""Keys and certificates of the parties: self-signed, exchanged by people, and pinned by fingerprint.

ECDSA on P-256, which the TLS of every library takes. A certificate can't sign others, so trusting one is trusting that
one and nothing else: TLS takes all that a pinned one has signed, unless the pinned one says that it can't sign. What
does not say so is refused here, whenever it is pinned or used.
"""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit.errors import DataError, UsageError

LARGEST = 64 * 1024  # bytes of a file; ours have below 1,000
DAYS, MOST_DAYS = 825, 1100  # that a certificate is valid, if nobody says otherwise, and at most
SKEW = timedelta(hours=1)  # a new certificate is valid from an hour ago, for peers whose clocks are slow


@dataclass(frozen=True)
class Identity:
    """What a party proves its name with."""

    name: str  # of the party
    key_pem: bytes = field(repr=False)  # the private key; it never leaves the party, and `repr` does not show it
    cert_pem: bytes = field(repr=False)  # the certificate, which the peers pin


@dataclass(frozen=True)
class Certificate:
    """What a certificate says."""

    name: str  # of the party that it belongs to
    fingerprint: str  # as `fingerprint` writes it
    not_before: datetime  # the first moment of its validity
    not_after: datetime  # the last one

    def check_dates(self, now: datetime | None = None) -> None:
        """A `DataError` where the certificate is not valid at this moment."""
        now = now or datetime.now(UTC)
        if now > self.not_after:
            raise DataError(
                f"the certificate of {self.name} expired on {self.not_after:%Y-%m-%d %H:%M} UTC: make a new one "
                "with `tacit rotate` in its folder, and let the peers trust that"
            )
        if now < self.not_before:
            raise DataError(
                f"the certificate of {self.name} is valid from {self.not_before:%Y-%m-%d %H:%M} UTC on, and the clock "
                f"here says {now:%Y-%m-%d %H:%M} UTC: check the clocks of both machines"
            )


def check_name(name: str) -> str:
    """The name, if a party can have it; it becomes a name in certificates, of files, and in logs."""
    if not re.fullmatch(r"[a-z0-9-]{1,63}", name) or name.startswith("-") or name.endswith("-"):
        raise UsageError(
            f"{name!r} can't be a party's name: use 1 to 63 of the characters a-z, 0-9 and -, without - at the ends"
        )
    return name


def create(name: str, *, days: int = DAYS, now: datetime | None = None) -> Identity:
    """A new key and its self-signed certificate, valid for so many days from now on, or from this moment.

    >>> identity = create("airport")
    >>> identity
    Identity(name='airport')
    >>> read(identity.cert_pem).name
    'airport'
    """
    check_name(name)
    if not 1 <= days <= MOST_DAYS:
        raise UsageError(
            f"create(days={days}): a certificate is valid for at least one day, and for {MOST_DAYS} at most"
        )
    now = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(True, *[False] * 8), critical=True)  # digital signatures, and nothing else
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Identity(name, key_pem, certificate.public_bytes(serialization.Encoding.PEM))


def fingerprint(cert_pem: bytes) -> str:
    """SHA-256 of the certificate, in sixteen groups of four digits that two people can read out to each other."""
    return _fingerprint(_load(cert_pem))


def read(pem: bytes, *, now: datetime | None = None, dates: bool = True) -> Certificate:
    """What a certificate says, if it is one that a party may trust: alone, of the form that `create` gives.

    It must also be valid now, or at this moment, if its dates are to be looked at.
    """
    loaded = _load(pem)
    found = Certificate(_name(loaded), _fingerprint(loaded), loaded.not_valid_before_utc, loaded.not_valid_after_utc)
    wrong = _foreign(loaded)
    if wrong:
        raise DataError(f"the certificate {wrong}: let the peer make one with tacit init")
    if dates:
        found.check_dates(now)
    return found


def _foreign(loaded: x509.Certificate) -> str:
    """Why a certificate is not one that `create` made; nothing where it may be."""
    try:
        key = loaded.public_key()
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        return "has a key that is not on the curve P-256, which the TLS of both sides takes"
    if loaded.issuer != loaded.subject:
        return f"is signed by another ({loaded.issuer.rfc4514_string()}), and only one that signs itself can be pinned"
    try:
        loaded.verify_directly_issued_by(loaded)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return "is signed by another key than its own, and only one that signs itself can be pinned"
    try:
        ca = loaded.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        signs = loaded.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        ca = signs = True  # where nothing is said, it may
    if ca or signs:
        return "could sign others, and whoever they are would be trusted as well"
    valid = loaded.not_valid_after_utc - loaded.not_valid_before_utc
    long = valid > timedelta(days=MOST_DAYS) + SKEW
    return f"is valid for {valid.days} days, and {MOST_DAYS} are the most" if long else ""


def _load(pem: bytes) -> x509.Certificate:
    if b"PRIVATE KEY" in pem:
        raise DataError("this is a private key: it must not leave its owner; ask the peer for its .crt file")
    if len(pem) > LARGEST:
        raise DataError(f"{len(pem)} bytes are no certificate: ask the peer for its .crt file")
    try:
        found = x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion):
        raise DataError("no certificate in PEM form can be read here: ask the peer for its .crt file") from None
    if len(found) != 1:
        raise DataError(f"{len(found)} certificates in one file: a party has one, ask for the .crt file of tacit init")
    return found[0]


def _name(loaded: x509.Certificate) -> str:
    """The one DNS name that TLS compares; the common name plays no part in that."""
    try:
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (name,) = (str(entry.value) for entry in names)
        return check_name(name)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError) as error:
        raise DataError(
            f"the certificate does not name one party ({error}): let the peer make one with tacit init"
        ) from None


def _fingerprint(loaded: x509.Certificate) -> str:
    digits = loaded.fingerprint(hashes.SHA256()).hex()
    return ":".join(digits[place : place + 4] for place in range(0, len(digits), 4))


def show(context: ssl.SSLContext, identity: Identity) -> None:
    """Let a probe show our certificate. The module reads files alone, and keys have no place in those: memory."""
    fd = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        os.write(fd, identity.key_pem + identity.cert_pem)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
