"""A new key and certificate for a party that has runs, pinned peers and a noise secret, none of which change.

In two acts, because between them people have to talk. The order of the writes is such that the folder holds one whole
pair, the old one or the new one, whenever the machine stops: the certificate that counts is that of `keys/party.key`.
"""

from __future__ import annotations

from pathlib import Path

from tacit.company.folder import Folder, belong_together, write_new
from tacit.disk import sync_folder
from tacit.errors import UsageError
from tacit.wire import certificates
from tacit.wire.certificates import Certificate


def next_certificate(folder: Folder | str | Path) -> Path:
    """Where the certificate of the next pair is, from `prepare` until `switch`."""
    folder = Folder.at(folder)
    return folder.path / f"{folder.identity.name}-next.crt"


def prepare(folder: Folder | str | Path, *, days: int = certificates.DAYS) -> Certificate:
    """Make the next key and certificate, beside the present ones, which go on working; never over a prepared pair."""
    folder = Folder.at(folder)
    key, path = _next_key(folder), next_certificate(folder)
    if key.exists():
        raise UsageError(
            f"{key} is there already: give the peers {path.name}, and then take it into use with `tacit rotate --now`; "
            f"or delete {key} and {path.name} for a fresh pair"
        )
    made = certificates.create(folder.identity.name, days=days)
    path.unlink(missing_ok=True)  # of a preparation that was cut short: without its key it is of no use
    write_new(path, made.cert_pem, 0o644)
    write_new(key, made.key_pem, 0o600)
    sync_folder(folder.path)
    sync_folder(key.parent)
    return certificates.read(made.cert_pem)


def switch(folder: Folder | str | Path) -> Certificate:
    """Put the prepared pair into the place of the present one; the old key is gone after that.

    No command that connects may run in the folder: it would go on with the old key.
    """
    folder = Folder.at(folder)
    key, path = _next_key(folder), next_certificate(folder)
    in_use = folder.path / "keys" / "party.key"
    if not path.exists() or not (key.exists() or belong_together(in_use.read_bytes(), path.read_bytes())):
        raise UsageError(f"no new certificate is prepared in {folder.path}: make one with `tacit rotate` first")
    if key.exists():
        if not belong_together(key.read_bytes(), path.read_bytes()):
            raise UsageError(f"{path} does not belong to {key}: delete both, and prepare a new pair")
        key.replace(in_use)
        sync_folder(in_use.parent)
    path.replace(folder.path / f"{folder.identity.name}.crt")
    sync_folder(folder.path)
    return certificates.read(Folder(folder.path).identity.cert_pem)


def _next_key(folder: Folder) -> Path:
    return folder.path / "keys" / "next.key"
