"""What two parties tell each other before the first step of every connection, and what they refuse to differ about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

from tacit.contracts import Link, Message
from tacit.errors import LinkError, ProtocolError, RefusedError, StorageError
from tacit.split.correspondence import Correspondence
from tacit.wire.codec import control, read_control
from tacit.wire.line import refused_by

# What must be the same on both sides, and what to do where it is not.
_EQUAL = {
    "protocol": "install the same version of Tacit on both sides",
    "version": "install the same version of Tacit on both sides",
    "run": "compare `run` in contract.toml",
    "contract": "compare contract.toml with `tacit contract` on both sides: the digests must be equal",
    "alignment": "one side has aligned again since: run `tacit align --again` on all sides",
    "rows": "the aligned rows differ: run `tacit align --again` on all sides",
}


@dataclass(frozen=True)
class Hello:
    """One side's words.

    Attributes:
        protocol: version of what crosses the wire.
        version: version of the code.
        run: the run's name.
        role: "label" or "features".
        party: the party's name.
        contract: digest of the contract.
        alignment: digest of the seeds that all parties committed to, as this party recorded them.
        rows: keyed digest of the aligned rows, in their order.
        protection: what this party does to what it sends, as its configuration says.
        asked: how many requests are durable in its journal.
        complete: how many answers are.
        transcript: hash of all complete turns.
    """

    protocol: int
    version: str
    run: str
    role: str
    party: str
    contract: str
    alignment: str
    rows: str
    protection: str
    asked: int
    complete: int
    transcript: str

    def at(self, exchange: Correspondence) -> Hello:
        """The same with where the journal stands now."""
        complete = exchange.complete
        transcript = exchange.transcript(complete)
        assert transcript is not None
        return replace(self, asked=exchange.asked, complete=complete, transcript=transcript.hex())

    def message(self) -> Message:
        """As it crosses the wire."""
        return control("hello", 0, asdict(self))

    @classmethod
    def read(cls, message: Message) -> Hello:
        """A peer's words; a `ProtocolError` where they are not all there, or of other types."""
        if message.kind != "hello":
            raise ProtocolError(f"a {message.kind} came before any hello")
        said = read_control(message)
        if "purpose" in said:  # the hello of an alignment
            raise RefusedError("purpose", "one side aligns and the other trains: give both the same command")
        wanted: Mapping[str, str] = {field.name: str(field.type) for field in fields(cls)}
        if set(said) != set(wanted):
            differ = ", ".join(repr(name) for name in sorted(set(said) ^ set(wanted)))
            raise ProtocolError(f"hello: fields are missing or unknown: {differ[:200]}")
        for name, kind in wanted.items():
            if type(said[name]).__name__ != kind:
                raise ProtocolError(f"hello: {name} is a {type(said[name]).__name__}, not a {kind}")
        return cls(**said)


def greet_label_party(link: Link, hello: Hello, exchange: Correspondence, *, patience: float = 120.0) -> None:
    """The feature party's part over a new link: say hello, hear one, and ask the open question again.

    A label party that is at work on a step, or reads its journal, answers after that: so much patience, in seconds.
    """
    mine = hello.at(exchange)
    link.send(mine.message())
    check(mine, _heard(link, patience), exchange, name=link.peer)
    request = exchange.request(exchange.complete)
    if request is not None:
        link.send(request)


def greet_feature_party(link: Link, hello: Hello, exchange: Correspondence, *, patience: float = 10.0) -> None:
    """The label party's part: hear the feature party's hello, and answer it if nothing speaks against it."""
    theirs = _heard(link, patience)
    mine = hello.at(exchange)
    check(mine, theirs, exchange, name=link.peer)
    link.send(mine.message())


def _heard(link: Link, patience: float) -> Hello:
    said = link.recv(patience)
    if said is None:
        raise LinkError(f"{link.peer} says nothing for {patience:.0f} s after connecting")
    if said.kind == "refusal":
        raise refused_by(said, link.peer)
    return Hello.read(said)


def check(mine: Hello, theirs: Hello, exchange: Correspondence, *, name: str) -> None:
    """Refuse to go on where the two sides differ, by the field; the peer's name is the one of its certificate.

    It is a `StorageError` where we can't go on: our own journal is behind what the peer has seen.
    """
    for field, remedy in _EQUAL.items():
        here, there = getattr(mine, field), getattr(theirs, field)
        if here != there:
            raise RefusedError(field, f"{field} is {_short(here)} here and {_short(there)} at {name}: {remedy}")
    if theirs.party != name or {mine.role, theirs.role} != {"features", "label"}:
        raise RefusedError(
            "party",
            f"{name} calls itself {_short(theirs.party)}, {_short(theirs.role)}: its certificate says otherwise",
        )
    feature, label = (mine, theirs) if mine.role == "features" else (theirs, mine)
    _check_journals(feature, label, mine)
    if mine is feature and feature.complete < label.complete:  # the label party compares: it knows what was said
        return
    remembered = exchange.transcript(feature.complete)
    if remembered is None or remembered.hex() != theirs.transcript:
        raise RefusedError("transcript", f"after {feature.complete} turns the two sides remember different messages")


def _check_journals(feature: Hello, label: Hello, mine: Hello) -> None:
    """A journal that is behind what the other side has seen is an old copy: going on from it would answer twice.

    An answer is written down by the label party first, and a request by the feature party.
    """
    for one in (feature, label):
        if not 0 <= one.complete <= one.asked <= one.complete + 1:
            raise RefusedError("journal", f"{_short(one.party)} says that it has {_counted(one)}: no journal has that")
    if feature.complete <= label.complete and label.asked <= feature.asked:
        return
    behind, ahead = (label, feature) if label.complete < feature.complete else (feature, label)
    said = (
        f"the journal of {_short(behind.party)} has {_counted(behind)}, that of {_short(ahead.party)} has "
        f"{_counted(ahead)}"
    )
    if behind is mine:
        raise StorageError(f"{said}: this folder is an older copy. Bring back the newest one, or start a new run")
    raise RefusedError("journal", f"{said}: it is an older copy; bring back the newest one, or start a new run")


def _counted(hello: Hello) -> str:
    return f"{hello.asked} requests and {hello.complete} answers"


def _short(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 40 else text[:16] + "…")
