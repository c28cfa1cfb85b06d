"""A party's folder: its keys, whom it trusts, its settings, the contract, and a folder for each run.

::

    airline/
    ├── party.toml        settings of this party
    ├── contract.toml     what all parties agree on
    ├── airline.crt       the certificate, to be given to the others
    ├── keys/             never leave this machine
    │   ├── party.key     of the certificate
    │   └── secret        the root of the noise keys
    ├── trusted/          certificates of the others, pinned
    ├── facts.sqlite      which ids were aligned, and which run uses which alignment
    └── runs/             journals and checkpoints, a folder for each run
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cryptography.hazmat.primitives import serialization
from cryptography.x509 import load_pem_x509_certificate

from tacit.company.draft import read_labels, row_count
from tacit.config import Contract, Data, OneShotContract, Party, Terms, load_contract, read_contract
from tacit.config.templates import Mode, contract_template, party_template
from tacit.disk import no_strangers, private, write
from tacit.errors import DataError, UsageError
from tacit.progress import on_terminal
from tacit.wire import certificates
from tacit.wire.certificates import Certificate, Identity

if TYPE_CHECKING:
    from tacit.align.sources import Source
    from tacit.company.aligned import Aligned
    from tacit.report.document import Report

_OURS = ("party.toml", "keys", "trusted", "runs")
_SECRET = 32  # bytes
_RUN = re.compile(r"""^(run[ \t]*=[ \t]*)("[^"\n]*"|'[^'\n]*')""", re.MULTILINE)


def create(
    folder: str | Path,
    *,
    role: Literal["label", "features"],
    name: str | None = None,
    mode: Mode = "one_shot",
    address: str | None = None,
    data: Data | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Folder:
    """Make a party's folder: keys, certificate, a party.toml. Nothing that exists is ever overwritten.

    Args:
        folder: where; it may exist and hold data, but nothing of a party yet.
        role: "label" for the party that has the column to be learnt, "features" for all others.
        name: of the party in certificates and contracts; the folder's name if not given.
        mode: "one_shot" or "split": how it is going to train.
        address: where the label party listens, or where a feature party finds it; port 7443 if not given.
        data: the party's table, as `tacit.company.draft.read_data` reads it; to be filled in if not given.
        left_out: its columns that are not used, and why.
    """
    path = Path(folder)
    name = certificates.check_name(path.resolve().name if name is None else name)
    settings = party_template(role, name, mode=mode, address=address, data=data, left_out=left_out)
    taken = [one for one in (*_OURS, f"{name}.crt") if (path / one).exists()]
    if taken:
        raise UsageError(
            f"{path} holds {', '.join(taken)} already, and keys are never overwritten: choose another folder, or move "
            "these away"
        )
    identity = certificates.create(name)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for inner in ("keys", "trusted", "runs"):
            (path / inner).mkdir(mode=0o700)
        write_new(path / "keys" / "secret", secrets.token_bytes(_SECRET), 0o600)
        write_new(path / "keys" / "party.key", identity.key_pem, 0o600)
        write_new(path / f"{name}.crt", identity.cert_pem, 0o644)
        write_new(path / "party.toml", settings.encode(), 0o600)
    except OSError as error:
        raise UsageError(
            f"{error.filename or path} can't be made ({error.strerror}): choose a folder that you may write"
        ) from None
    return Folder(path)


class Folder:
    """A party's folder, opened; everything in it is read when it is first asked for, and checked then.

    Args:
        path: where it is. A path without party.toml, or with keys that others can read, is a `UsageError`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_file():
            raise UsageError(f"{self.path} is a file: name the party's folder, which holds party.toml")
        if not (self.path / "party.toml").is_file():
            raise UsageError(
                f"{self.path} is no party's folder, it has no party.toml: make one with "
                "`tacit init --role label|features DIR`, or say which with --folder"
            )
        private(self.path / "keys" / "party.key")
        private(self.path / "keys" / "secret")
        for inner in ("", "keys", "trusted", "runs"):
            no_strangers(self.path / inner)

    @classmethod
    def at(cls, folder: Folder | str | Path) -> Folder:
        """One that is open already, or that at a path."""
        return folder if isinstance(folder, Folder) else cls(folder)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"Folder({str(self.path)!r})"

    @cached_property
    def config(self) -> Party:
        """The party's settings; the name in them must be that of the certificate."""
        config = Party.load(self.path / "party.toml")
        if config.name != self.identity.name:
            raise UsageError(
                f"{self.path / 'party.toml'} says name = {config.name!r}, but the certificate here is that of "
                f"{self.identity.name!r}: write that name, or make a new folder with tacit init"
            )
        return config

    @property
    def contract(self) -> Contract:
        """What all parties agreed on who train step by step; a `UsageError` where they train in one exchange."""
        if isinstance(self.terms, Contract):
            return self.terms
        raise UsageError(f'{self.path / "contract.toml"} says mode = "one_shot", and this is for split training alone')

    @property
    def one_shot(self) -> OneShotContract:
        """What all parties agreed on who train in one exchange; a `UsageError` where they train step by step."""
        if isinstance(self.terms, OneShotContract):
            return self.terms
        raise UsageError(f'{self.path / "contract.toml"} says mode = "split", and this is for one-shot training alone')

    @cached_property
    def terms(self) -> Contract | OneShotContract:
        """What all parties agreed on, whichever way they train."""
        path = self.path / "contract.toml"
        if not path.exists():
            raise UsageError(
                f"{path} is missing: copy the contract that the parties agreed on to there, or make a new one with "
                "`tacit contract --new`"
            )
        return load_contract(path)

    def draft_contract(self, mode: Mode = "one_shot", *, run: str = "run-1") -> Path:
        """Write a contract.toml for this party and those it trusts; never over another one.

        A label party's says what its labels are, by its table.
        """
        path = self.path / "contract.toml"
        own, trusted, table = self.config.name, list(self.trusted), self.config.data
        if self.config.role == "features":
            text = contract_template(label_party=[*trusted, "airline"][0], feature_parties=[own], mode=mode, run=run)
        else:
            known: dict[str, Any] = {}
            if table is not None and table.path is not None and table.label is not None and self.data.is_file():
                known = {"label": read_labels(self.data, table.label, mode), "rows": row_count(self.data)}
            text = contract_template(
                label_party=own, feature_parties=trusted or ["airport"], mode=mode, run=run, **known
            )
        read_contract(text, path)  # a name that can't be one is told before there is a file
        try:
            write_new(path, text.encode(), 0o644)
        except FileExistsError:
            raise UsageError(f"{path} exists already: edit it, or move it away") from None
        return path

    def begin_run(self, name: str) -> None:
        """Write the name of another run into contract.toml; everything else in it stays, and so does the yes to it."""
        path = self.path / "contract.toml"
        if self.terms.run == name:
            return
        text, found = _RUN.subn(rf"\g<1>{json.dumps(name)}", path.read_text(), count=1)
        if not found or read_contract(text, path).run != name:
            raise UsageError(f"{path}: there is no line `run = ` of its own: write run = {json.dumps(name)} there")
        write(path, text.encode())
        del self.terms

    @cached_property
    def identity(self) -> Identity:
        """Name, key and certificate of this party: the certificate is the one here that belongs to the key."""
        key_pem = (self.path / "keys" / "party.key").read_bytes()
        for path in sorted(self.path.glob("*.crt")):
            cert_pem = path.read_bytes()
            if belong_together(key_pem, cert_pem):
                return Identity(_read_certificate(path, cert_pem).name, key_pem, cert_pem)
        raise UsageError(
            f"no certificate in {self.path} belongs to keys/party.key: put the right pair back, or make a new folder "
            "with tacit init"
        )

    @property
    def trusted(self) -> dict[str, bytes]:
        """The pinned certificates of the others, by name."""
        found = {}
        for path in sorted((self.path / "trusted").glob("*.crt")):
            pem = path.read_bytes()
            certificate = _read_certificate(path, pem, dates=False)
            if certificate.name != path.stem:
                raise UsageError(
                    f"{path} is the certificate of {certificate.name!r}: remove it, and pin it with tacit trust"
                )
            found[certificate.name] = pem
        return found

    def trust(self, certificate: str | Path, *, replace: bool = False) -> Certificate:
        """Pin a peer's certificate: from now on this one, and no other, is that peer.

        Args:
            certificate: the file that the peer sent.
            replace: whether it may take the place of another one that was pinned for the same name.
        """
        path = Path(certificate)
        try:
            with path.open("rb") as file:
                pem = file.read(certificates.LARGEST + 1)
        except OSError as error:
            raise UsageError(f"{path} can't be read ({error.strerror}): correct the path") from None
        found = _read_certificate(path, pem)
        if found.name == self.identity.name:
            own = found.fingerprint == certificates.fingerprint(self.identity.cert_pem)
            what = (
                "this party's own certificate" if own else f"a certificate with this party's own name, {found.name!r}"
            )
            raise UsageError(f"{path} is {what}: trust the one that the peer sent, and let the peers trust yours")
        pinned = self.trusted.get(found.name)
        if pinned is not None and certificates.fingerprint(pinned) != found.fingerprint and not replace:
            raise UsageError(
                f"another certificate is pinned for {found.name!r}, with the fingerprint "
                f"{certificates.fingerprint(pinned)}: ask the peer, by phone, whether it made a new one; if so, "
                "trust it with --replace"
            )
        (self.path / "trusted").mkdir(mode=0o700, exist_ok=True)
        write(self.path / "trusted" / f"{found.name}.crt", pem)
        return found

    @cached_property
    def secret(self) -> bytes:
        """The root of the noise keys; who has it can subtract the noise."""
        secret = (self.path / "keys" / "secret").read_bytes()
        if len(secret) != _SECRET:
            raise UsageError(
                f"keys/secret in {self.path} has {len(secret)} bytes, not {_SECRET}: put the old file back; a new one "
                "means a new run"
            )
        return secret

    def run_secret(self, run_id: bytes) -> bytes:
        """The secret of one run: HMAC-SHA256 of the run's id under the root."""
        return hmac.new(self.secret, run_id, hashlib.sha256).digest()

    def tally_path(self, contract: Terms, run_id: bytes) -> Path:
        """Path of the count of a run's messages: apart from this folder, so that an older copy of it is detected."""
        return self._counted_apart(contract.run, run_id)

    def tally_path_of(self, book: str) -> Path:
        """Where the entries of one of the party's books are counted, beside what was sent in its runs.

        They are "split-runs"; "alignments"; "coins", the releases of its labels; "embeddings", those that it sent;
        "predicted", what was sent for predictions; "served-RUN", the rows of a run that left for serving.
        """
        return self._counted_apart(book, f" of the {book}".encode())

    def _counted_apart(self, name: str, what: bytes) -> Path:
        """In the folder that TACIT_STATE names, else `tacit` under XDG_STATE_HOME, else `~/.local/state/tacit`."""
        named, state = os.environ.get("TACIT_STATE"), os.environ.get("XDG_STATE_HOME")
        try:
            where = Path(named) if named else (Path(state) if state else Path.home() / ".local" / "state") / "tacit"
        except RuntimeError:  # nobody's home
            raise UsageError(
                "there is no home for the counts of what was sent: set TACIT_STATE to a folder that lasts"
            ) from None
        if where.resolve().is_relative_to(self.path.resolve()):
            raise UsageError(
                f"TACIT_STATE = {where} lies in the party's folder, with which it would come back from a backup: name "
                "another place"
            )
        return where / f"{name}-{self.config.name}-{hmac.digest(self.secret, b'tally' + what, 'sha256').hex()[:32]}"

    def run_folder(self, contract: Terms) -> Path:
        """Where the journal and the checkpoints of the contract's run are; made if it is not there."""
        path = self.path / "runs" / contract.run
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path} can't be made a folder ({error.strerror}): look at what is there") from None
        no_strangers(path)
        return path

    @property
    def data(self) -> Path:
        """The party's table, as party.toml names it; of a query the rows that were copied when the run was aligned."""
        path = self.table.path
        return self.run_folder(self.terms) / "table.parquet" if path is None else self.path / path

    @property
    def table(self) -> Data:
        """What party.toml says about the party's table."""
        if self.config.data is None:
            raise UsageError(
                f"{self.path / 'party.toml'} has no [data]: name the table and its columns there, or pass data and ids"
            )
        return self.config.data

    def align(
        self, data: Source | None = None, *, ids: str | Sequence[str] | None = None, again: bool = False
    ) -> Aligned:
        """Find the rows that all parties have, or what was found before; see `tacit.company.align.align`."""
        from tacit.company.align import align

        return align(self, data, ids=ids, again=again)

    def train(self, party: Any = None, *, quiet: bool = False) -> Any:
        """Train with the other parties; see `tacit.split.train.train`. Started again, it resumes."""
        from tacit.company.ways import way_of

        with on_terminal(quiet=quiet, first="preparing") as show:
            return way_of(self.contract).train(
                self, party, progress=lambda turn, turns, _: show("training", turn, turns),
                waiting=lambda peer, seconds, _: show(f"waiting for {peer}, {seconds:.0f} s", 0, 0),
            )  # fmt: skip

    def audit(self, *, limit: float | None = None, quiet: bool = False) -> Report:
        """Attack what this party recorded of its run with all attacks; see `tacit.company.audit.audit_run`."""
        from tacit.company.audit import audit_run

        with on_terminal(quiet=quiet, first="reading") as show:
            return audit_run(self, limit=limit, progress=show)

    def export(self, out: str | Path, *, override: str | None = None, reason: str | None = None) -> Path:
        """Copy the trained half out, unless its run broke its limit; see `tacit.company.export.export`."""
        from tacit.company.export import export

        return export(self, Path(out), override=override, reason=reason)

    def peers(self, contract: Terms) -> tuple[str, ...]:
        """Whom this party talks to: the label party to all feature parties, these to the label party alone."""
        return contract.feature_parties if self.config.role == "label" else (contract.label_party,)

    def check_pair(self, contract: Terms) -> None:
        """Refuse what does not fit the contract: name, role, missing trust, or a protection below the minimum."""
        name, role = self.config.name, self.config.role
        parties = (contract.label_party,) if role == "label" else contract.feature_parties
        if name not in parties:
            raise UsageError(
                f"this party is {name!r} with the role {role!r}, and the contract has none such (the label party is "
                f"{contract.label_party}, feature parties: {', '.join(contract.feature_parties)}): correct party.toml "
                "or contract.toml"
            )
        trusted = self.trusted
        peers = self.peers(contract)
        unknown = [peer for peer in peers if peer not in trusted]
        if unknown:
            raise UsageError(
                f"no certificate of {', '.join(unknown)} is trusted yet: let them send theirs, then `tacit trust "
                f"{unknown[0]}.crt`"
            )
        for peer in peers:
            _read_certificate(self.path / "trusted" / f"{peer}.crt", trusted[peer])
        if isinstance(contract, (Contract, OneShotContract)):
            from tacit.company.ways import way_of

            way_of(contract).check_minimum(self, contract)


def _read_certificate(path: Path, pem: bytes, *, dates: bool = True) -> Certificate:
    try:
        return certificates.read(pem, dates=dates)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def belong_together(key_pem: bytes, cert_pem: bytes) -> bool:
    """Whether a certificate is that of a private key; what is no key or no certificate belongs to nothing."""
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    try:
        key = serialization.load_pem_private_key(key_pem, password=None).public_key()
        certified = load_pem_x509_certificate(cert_pem).public_key()
    except (ValueError, TypeError):  # one of them is something else
        return False
    return key.public_bytes(*form) == certified.public_bytes(*form)


def write_new(path: Path, content: bytes, mode: int) -> None:
    """A new file, never over another one, and never readable by more than it should be."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
