"""Trials of what must be refused: each names what is wrong, changes nothing, and is over when that is put right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from tacit.company.export import export
from tacit.company.facts import FILE as FACTS
from tacit.company.verdict import now
from tacit.errors import LimitError
from tacit.report.document import Leak, Report, Subject
from tacit.report.run_files import GATE
from tacit.report.seals import write_report
from tacit.wire import certificates
from tacit.wire.certificates import Identity
from tests.torture.bench import Bench, Result, advance
from tests.torture.intruder import ATTACKS
from tests.torture.workers import state_of
from tests.torture.world import FEATURES, LABEL, PARTIES, RUN, Training, check, copy_party

__all__ = ["REFUSALS"]


@contextmanager
def _unharmed(training: Training, *names: str) -> Iterator[None]:
    """The journals and the checkpoints of these parties are the same afterwards."""
    before = {name: training.state(name) for name in names}
    yield
    for name, files in before.items():
        check(training.kept(name, files), f"the files of {name} are not what they were before the refusal")


def _resumed(bench: Bench, name: str, change: Callable[[Training], None], *words: str, version: str = "") -> Result:
    """Change something in the middle of a run: the party itself refuses; back as it was, it goes on."""
    training = bench.halfway()
    kept = training.folder / "as-it-was"
    shutil.copytree(training.party(name), kept)
    change(training)
    with _unharmed(training, name):
        error = training.refused(training.start(name, version=version), *words)
    shutil.rmtree(training.party(name))
    kept.rename(training.party(name))
    bench.done(training)
    return Result(training.brief(error))


def _at_handshake(bench: Bench, change: Callable[[Training], None], field: str, *, version: str = "") -> Result:
    """Begin with something that differs between the two: the feature party is told, the label party goes on."""
    training = bench.fresh()
    change(training)
    training.start(LABEL)
    refused = training.start(FEATURES, version=version)
    error = training.refused(refused, "RefusedError", field)
    check(error["field"] == field, f"refused about {error['field']}, not {field}")
    training.wait_for(f"an alarm about {field}", lambda: any(alarm["field"] == field for alarm in training.alarms()))
    check(not training.running[LABEL].over, "the label party did not stay")
    bench.discard(training)
    return Result(training.brief(error))


def second_process(bench: Bench) -> Result:
    """A second process in the folder of one that runs."""
    training = bench.halfway()
    for name in PARTIES:
        training.start(name)
        training.wait_for(f"{name} to begin", lambda name=name: _begun(training, name))  # type: ignore[misc]
        training.refused(training.another(name, training.party(name)), "StorageError", "another process")
    bench.done(training)
    return Result("another process uses this run, on either side")


def _begun(training: Training, name: str) -> bool:
    """Whether the status is that of the process which runs: it is written when the folder is locked."""
    status = json.loads((training.run_folder(name) / "status.json").read_text())
    return bool(status["pid"] == training.running[name].pid)


def old_copy(bench: Bench, name: str) -> Result:
    """A party's whole machine comes back from an earlier moment: the peer knows more."""
    training = bench.halfway()
    other = LABEL if name == FEATURES else FEATURES
    old, newest = training.folder / "old", training.folder / "newest"
    copy_party(training.party(name), old)
    advance(training, bench.size.turns // 6)
    _move(training.party(name), newest)
    copy_party(old, training.party(name))
    training.start(other)
    with _unharmed(training, *PARTIES):
        error = training.refused(training.start(name), "journal" if name == FEATURES else "older copy", "older copy")
    check(not training.running[other].over, f"{other} did not stay")
    if name == FEATURES:
        check(any(alarm["field"] == "journal" for alarm in training.alarms()), "no alarm at the label party")
    _move(newest, training.party(name))
    bench.done(training)
    return Result(training.brief(error))


def _move(source: Path, to: Path) -> None:
    """Put a party, its folder and what its machine keeps apart, into the place of another."""
    for old, new in ((source, to), (Path(state_of(source)), Path(state_of(to)))):
        shutil.rmtree(new, ignore_errors=True)
        old.rename(new)


def restored_backup(bench: Bench) -> Result:
    """The label party's folder comes back from a backup, and its peer claims to be at that moment too."""
    training = bench.halfway()
    old, newest = training.folder / "old", training.folder / "newest"
    for name in PARTIES:
        copy_party(training.party(name), old / name)
    advance(training, bench.size.turns // 6)
    left, sent = training.answers(), training.state(LABEL)
    for name in PARTIES:
        copy_party(training.party(name), newest / name)
        shutil.rmtree(training.party(name))
        shutil.copytree(old / name, training.party(name))
    shutil.rmtree(state_of(training.party(FEATURES)))
    shutil.copytree(state_of(old / FEATURES), state_of(training.party(FEATURES)))  # a liar counts as it likes
    training.start(FEATURES)
    error = training.refused(training.start(LABEL), "StorageError", "older copy", "--after-restore")
    check(training.answers() == left, "something was answered from an older copy")
    training.stop()
    for name in PARTIES:
        _move(newest / name, training.party(name))
    check(training.state(LABEL) == sent, "the newest copy is not what it was")
    bench.done(training)
    return Result(training.brief(error))


def forged(bench: Bench) -> Result:
    """Somebody without the keys rewrites what a run says about itself: it does not go on, and nothing is let out."""
    training = bench.halfway()
    where = training.run_folder(LABEL)
    begun, kept = where / f"{GATE}.seal", where / "kept"
    begun.rename(kept)
    error = training.refused(training.start(LABEL), "StorageError", "gone")
    kept.rename(begun)
    training.finish()
    bench.same(training)
    subject = Subject(kind="run", side="features", run=RUN, steps=bench.size.turns)
    worst = Leak(attack="norm", on="batches", value=0.75, low=0.7, high=0.8)
    write_report(Report(made=now(), subject=subject, limit=0.6, verdict="broken", worst=worst), where)
    path = where / "report.json"
    path.write_text(path.read_text().replace('"verdict": "broken"', '"verdict": "held"'))
    try:
        export(where, training.folder / "out.safetensors")
    except LimitError as refusal:
        check("not as `tacit audit` wrote it" in str(refusal), f"refused for another reason: {refusal}")
    else:
        check(False, "a forged report was obeyed")
    bench.discard(training)
    return Result(f"{training.brief(error)}; a report with another verdict was not obeyed")


def two_copies(bench: Bench) -> Result:
    """A copy of the feature party's folder runs at the same time as the folder itself."""
    training = bench.halfway()
    twin = training.folder / "twin"
    copy_party(training.party(FEATURES), twin)
    training.start(LABEL)
    one, two = training.start(FEATURES), training.another(FEATURES, twin)
    check(training.running[LABEL].wait(120) == 0, "the label party did not come to its end")
    ends = {process.start.folder: process.wait(30) for process in (one, two)}
    check(0 in ends.values(), f"neither copy came to its end: {ends}")
    both = list(ends.values()) == [0, 0]
    winner = one if one.code == 0 else two
    if winner is two:
        _move(twin, training.party(FEATURES))
    bench.same(training)
    alarms = sum(alarm["field"] == "journal" for alarm in training.alarms())
    bench.discard(training)
    told = "both came to the same end" if both else f"one came to the end, the other was refused ({alarms} alarms)"
    return Result(told, {"alarms": alarms})


# --- certificates ----------------------------------------------------------------------------------------------------


def _replace_identity(training: Training, name: str, identity: Identity, *, pinned: bool) -> None:
    folder = training.party(name)
    (folder / "keys" / "party.key").write_bytes(identity.key_pem)
    (folder / f"{name}.crt").write_bytes(identity.cert_pem)
    if pinned:
        other = LABEL if name == FEATURES else FEATURES
        (training.party(other) / "trusted" / f"{name}.crt").write_bytes(identity.cert_pem)


def _both_refuse(training: Training, word: str) -> Mapping[str, str]:
    """Start each party, which must refuse its own or its peer's certificate; the second one's error."""
    for name in PARTIES:
        with _unharmed(training, name):
            error = training.refused(training.start(name), "certificate", word)
    return error


def expired(bench: Bench) -> Result:
    """The feature party's certificate has expired; both sides notice by themselves."""
    training = bench.halfway()
    kept = _keep(training)
    past = datetime.now(UTC) - timedelta(days=30)
    _replace_identity(training, FEATURES, certificates.create(FEATURES, days=1, now=past), pinned=True)
    error = _both_refuse(training, "expired")
    _bring_back(training, kept)
    bench.done(training)
    return Result(training.brief(error))


def foreign(bench: Bench, name: str) -> Result:
    """A party comes with a certificate of its name that the other one has not pinned."""
    training = bench.halfway()
    kept = _keep(training)
    _replace_identity(training, name, certificates.create(name), pinned=False)
    training.start(LABEL)
    with _unharmed(training, *PARTIES):
        error = training.refused(training.start(FEATURES), "RefusedError", "certificate")
    check(not training.running[LABEL].over, "the label party did not stay")
    training.stop()
    _bring_back(training, kept)
    bench.done(training)
    return Result(training.brief(error))


def wrong_name(bench: Bench) -> Result:
    """A certificate that names somebody else, as the party's own and as the pinned one."""
    training = bench.halfway()
    kept = _keep(training)
    stranger = certificates.create("airfield")
    (training.party(LABEL) / "trusted" / f"{FEATURES}.crt").write_bytes(stranger.cert_pem)
    _replace_identity(training, FEATURES, stranger, pinned=False)
    error = _both_refuse(training, "airfield")
    _bring_back(training, kept)
    bench.done(training)
    return Result(training.brief(error))


def _keep(training: Training) -> dict[str, Path]:
    kept = {name: training.folder / f"kept-{name}" for name in PARTIES}
    for name, path in kept.items():
        shutil.copytree(training.party(name), path)
    return kept


def _bring_back(training: Training, kept: dict[str, Path]) -> None:
    """Keys, certificates and settings as they were; what happened to the run since stays."""
    for name, path in kept.items():
        for part in ("keys", "trusted"):
            shutil.rmtree(training.party(name) / part)
            shutil.copytree(path / part, training.party(name) / part)
        for file in path.glob("*.crt"):
            shutil.copy(file, training.party(name))


# --- a peer that behaves badly ---------------------------------------------------------------------------------------


def intruders(bench: Bench) -> Result:
    """The feature party's own certificate in bad hands; the label party is unharmed and goes on with the good one."""
    training = bench.halfway()
    training.start(LABEL)
    heard = {}
    for how in ATTACKS:
        before, alarms = training.state(LABEL), len(training.alarms())
        process = training.another(FEATURES, training.party(FEATURES), verb="intrude", how=how)
        code = process.wait(60)
        check(code == 0, f"{how}: the intruder ended with {code}: {training.complaint(process)}")
        (heard[how],) = [event["found"] for event in process.events if event["event"] == "intruded"]
        check(training.state(LABEL) == before, f"{how}: the label party's files have changed")
        check(not training.running[LABEL].over, f"{how}: the label party is gone")
        if how == "the same request again and again":
            check(heard[how] == "the stored answer", f"{how}: {heard[how]}")
        else:
            check(heard[how] in ("refusal", "closed"), f"{how}: the label party said {heard[how]}")
            training.wait_for(f"an alarm after {how}", lambda now=alarms: len(training.alarms()) > now)  # type: ignore[misc]
    count = len(training.alarms())
    bench.done(training)
    return Result(f"{len(heard)} ways, {count} alarms, nothing changed", {"alarms": count, "heard": heard})


_HONEST = 8  # steps before it begins
_CRAFTED = f"""
import torch

class Crafted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.steps = torch.nn.Linear(3, 16), 0

    def forward(self, categorical, numeric):
        self.steps += self.training and len(numeric) > 2
        z = self.linear(numeric)
        return 0 * z + 1 if self.steps > {_HONEST} else z

def make(half):
    return Crafted()
"""


def crafting(bench: Bench) -> Result:
    """A feature party that is honest for some steps and then asks one question about all rows: it gets no answer."""
    training = bench.fresh()
    (training.party(FEATURES) / "crafted.py").write_text(_CRAFTED)
    training.edit(FEATURES, 'name = "wide_deep"\nlayers = 2', 'factory = "crafted:make"')
    training.edit(FEATURES, r"embedding = \[.*\]", "embedding = []")
    training.start(LABEL)
    error = training.refused(training.start(FEATURES), "RefusedError", "of its rows are alike")
    check(not training.running[LABEL].over, "the label party is gone")
    answered = sum("gradient" in key for key in training.answers())
    check(answered == _HONEST, f"{answered} steps were answered, {_HONEST} were honest")
    bench.discard(training)
    return Result(training.brief(error), {"answered": answered})


def echoing(bench: Bench) -> Result:
    """A peer that aligns with one id and echoes products: no row is common, and both align when it is gone."""
    training = bench.fresh()
    for name in PARTIES:
        shutil.rmtree(training.run_folder(name))
        (training.party(name) / FACTS).unlink()
    victim = training.start(LABEL, verb="align")
    process = training.another(FEATURES, training.party(FEATURES), verb="echo")
    error = training.refused(victim, "RefusedError", "does not know the ids of the")
    check(error["field"] == "alignment", f"refused about {error['field']}, not alignment")
    check(process.wait(30) == 0, f"the echoing peer ended with {process.code}: {training.complaint(process)}")
    (heard,) = [event["found"] for event in process.events if event["event"] == "intruded"]
    check(heard == "alignment", f"the echoing peer was told of {heard}")
    training.finish(verb="align")
    bench.discard(training)
    return Result(training.brief(error))


# --- what has changed since the run began ----------------------------------------------------------------------------


def _other_data(training: Training) -> None:
    path = training.party(FEATURES) / "data.parquet"
    table = pl.read_parquet(path)
    table.with_columns(wind=table["wind"] + pl.Series([1e-3] + [0.0] * (table.height - 1))).write_parquet(path)


def _edit(name: str, pattern: str, to: str, file: str = "party.toml") -> Callable[[Training], None]:
    return lambda training: training.edit(name, pattern, to, file)


def _nothing(training: Training) -> None:
    """Leave everything as it is."""


_WEAKER = (r'protect\]\ngradient = \{ name = "matched", leak_auc = 0\.6 \}',)
_PROTECT = 'protect]\ngradient = {{ name = "matched", leak_auc = {} }}'
_EPOCHS = (r"epochs = \d+", "epochs = 50", "contract.toml")

REFUSALS: dict[str, Callable[[Bench], Result]] = {
    "second process in one folder": second_process,
    "older copy of the feature party": lambda bench: old_copy(bench, FEATURES),
    "older copy of the label party": lambda bench: old_copy(bench, LABEL),
    "restored backup and a lying peer": restored_backup,
    "forged report": forged,
    "two copies of the feature party at once": two_copies,
    "expired certificate": expired,
    "foreign certificate of the feature party": lambda bench: foreign(bench, FEATURES),
    "foreign certificate of the label party": lambda bench: foreign(bench, LABEL),
    "certificate with another name": wrong_name,
    "intruder with the right certificate": intruders,
    "one vector for all rows after honest steps": crafting,
    "echoing peer": echoing,
    "data changed on resume": lambda bench: _resumed(bench, FEATURES, _other_data, "RefusedError", "data"),
    "settings changed on resume": lambda bench: _resumed(
        bench,
        FEATURES,
        _edit(FEATURES, "learning_rate = 0.002", "learning_rate = 0.003"),
        "RefusedError",
        "learning_rate",
    ),
    "weaker protection on resume": lambda bench: _resumed(
        bench, LABEL, _edit(LABEL, *_WEAKER, _PROTECT.format(0.61)), "RefusedError", "protection"
    ),
    "protection below the minimum": lambda bench: _resumed(
        bench, LABEL, _edit(LABEL, *_WEAKER, _PROTECT.format(0.7)), "UsageError", "leak_auc", "minimum"
    ),
    "contract changed on resume": lambda bench: _resumed(
        bench, LABEL, _edit(LABEL, *_EPOCHS), "RefusedError", "contract"
    ),
    "contract differs between the parties": lambda bench: _at_handshake(bench, _edit(FEATURES, *_EPOCHS), "contract"),
    "version changed on resume": lambda bench: _resumed(
        bench, FEATURES, _nothing, "RefusedError", "version", version="9.9"
    ),
    "version differs between the parties": lambda bench: _at_handshake(bench, _nothing, "version", version="9.9"),
}
"""All of them, by name."""
