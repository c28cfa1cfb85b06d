"""Why a connection could not be made: what gRPC and TLS say about it, in words that help."""

from __future__ import annotations

import socket
import ssl

from tacit.errors import LinkError, RefusedError, TacitError
from tacit.wire import certificates
from tacit.wire.certificates import Certificate, Identity

__all__ = ["explain"]

_PROBE_SECONDS = 3.0


def explain(details: str, address: str, identity: Identity, pinned: Certificate) -> TacitError:
    """The error for a connection that gRPC could not make.

    A `RefusedError` about the certificate where TLS says so, and otherwise a `LinkError`: trying again may help.

    Args:
        details: gRPC's own words.
        address: where to.
        identity: who we are.
        pinned: who should have been there.
    """
    where = f"{pinned.name} at {address}"
    if "CERTIFICATE_VERIFY_FAILED" in details:
        wrong = "one that has expired" if "expired" in details else "another one"
        return RefusedError(
            "certificate",
            f"{where} should show the certificate {pinned.fingerprint} and shows {wrong}: ask {pinned.name} which "
            "is right, on the phone; if it made a new one, tacit trust it",
        )
    if "Hostname Verification" in details:
        return RefusedError("certificate", f"{where}: the certificate there does not name {pinned.name}")
    if "Connection refused" in details:
        return LinkError(f"nothing listens for {where}: see whether {pinned.name} runs and the address is right")
    if "WRONG_VERSION_NUMBER" in details:
        return LinkError(f"what listens for {where} does not speak TLS: see whether the address is right")
    if "hostname lookup" in details or "DNS" in details:
        return LinkError(f"the name in the address of {where} is not known here: see whether it is right")
    if all(_hangs_up(address, identity, pinned) for _ in range(2)):  # twice: once may be a peer that just stopped
        ours = certificates.fingerprint(identity.cert_pem)
        return RefusedError(
            "certificate",
            f"{where} does not take our certificate {ours} of {identity.name}: it trusts another one, or none, or its "
            f"clock says that ours is not valid; let {pinned.name} trust the present one with tacit trust",
        )
    return LinkError(f"the connection to {where} could not be made: {details}")


def _hangs_up(address: str, identity: Identity, pinned: Certificate) -> bool:
    """Whether the pinned peer itself ends the connection when it sees our certificate.

    gRPC tells neither side more than that a socket was closed. In TLS 1.3 our side of the handshake is done before the
    peer judges our certificate: one that takes it sends its first bytes, one that does not closes the connection.
    """
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate is compared with the pinned one below
    context.set_alpn_protocols(["h2"])
    try:
        certificates.show(context, identity)
        with (
            socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS) as plain,
            context.wrap_socket(plain) as secured,
        ):
            shown = secured.getpeercert(binary_form=True) or b""
            its_own = certificates.fingerprint(ssl.DER_cert_to_PEM_cert(shown).encode()) == pinned.fingerprint
            return its_own and not secured.recv(1)
    except (OSError, ValueError):  # of the network, of TLS, of an address or a certificate that is none
        return False
