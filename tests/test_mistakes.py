"""Every mistake that a new user is likely to make, through the real command: what is said, and how it ends.

One line on the error stream, or a few where several things are wrong; it names the file or the field, and the next act;
there is never a traceback.
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks._companies import align_rows, two_companies
from tacit.cli import main
from tacit.company import meeting
from tacit.company.agreed import agree
from tacit.company.folder import Folder
from tacit.errors import RefusedError
from tacit.wire import certificates
from tacit.wire.line import last_words

IDS = list(range(60))
TABLE = {"id": IDS, "y": [one % 2 for one in IDS], "x": [one / 10 for one in IDS]}


@dataclass
class Place:
    """Where mistakes are made: two companies that are ready, and some files."""

    root: Path
    port: int

    @property
    def airline(self) -> Path:
        return self.root / "airline"

    @property
    def airport(self) -> Path:
        return self.root / "airport"

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.airline / name
        text = path.read_text()
        assert old in text, f"{old} is not in {name}"
        path.write_text(text.replace(old, new))

    def table(self, **columns: object) -> None:
        pl.DataFrame({**TABLE, **columns}, strict=False).write_parquet(self.airline / "data.parquet")

    def aligned(self) -> None:
        align_rows(Folder(self.airline), np.arange(60), id="a" * 32, seed=3, digest="b" * 64)

    def pair(self, gradients: object, labels: object) -> str:
        np.savez(self.root / "m.npz", gradients=np.asarray(gradients), labels=np.asarray(labels))
        return f"audit --messages {self.root / 'm.npz'} --out {self.root / 'out'} --batch-size 20"


@pytest.fixture(name="place")
def _place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    table = pl.DataFrame(TABLE)
    for folder in two_companies(
        tmp_path, (table, table), port=port, protect='protect.gradient.name = "none"\nbudget = 1'
    ):
        agree(folder)
    return Place(tmp_path, port)


@pytest.fixture(name="tacit")
def _tacit(monkeypatch, capsys):
    """Run a command line in this process: the exit code, and the error stream."""
    monkeypatch.delenv("TACIT_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def run(line):
        monkeypatch.setattr(sys, "argv", ["tacit", *line.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().err

    return run


def settings(old: str, new: str) -> Callable[[Place], str]:
    """A mistake in party.toml, which align notices before it asks anybody."""
    return lambda place: place.edit("party.toml", old, new) or f"align {place.airline}"


def agreed(old: str, new: str) -> Callable[[Place], str]:
    """A mistake in contract.toml."""
    return lambda place: place.edit("contract.toml", old, new) or f"align {place.airline}"


def gone(name: str, line: str) -> Callable[[Place], str]:
    """A file that is not there."""
    return lambda place: (place.airline / name).unlink() or line.format(place=place)


def written(name: str, content: bytes, line: str = "align {place.airline}") -> Callable[[Place], str]:
    """A file that holds something else."""
    return lambda place: [(place.airline / name).write_bytes(content), line.format(place=place)][1]


def mode(name: str, mode: int, line: str) -> Callable[[Place], str]:
    return lambda place: (place.airline / name).chmod(mode) or line.format(place=place)


def labels(values: list) -> Callable[[Place], str]:
    """Labels that can't be used, which are met when the party is built, before the peer is waited for."""
    return lambda place: place.table(y=values) or place.aligned() or f"train {place.airline}"


def columns(name: str, values: list) -> Callable[[Place], str]:
    """A column that can't be read as party.toml says."""
    return lambda place: (
        place.edit("party.toml", 'label = "y"', f'label = "y", numeric = ["{name}"]')
        or place.table(**{name: values})
        or f"align {place.airline}"
    )


def said(line: str) -> Callable[[Place], str]:
    return lambda place: line.format(place=place)


G = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
Y = np.arange(100) % 2
NAN = np.where(np.arange(100)[:, None] == 3, np.nan, G)
NONE = 'protect.gradient.name = "none"'

MISTAKES = {
    # the folder
    "no folder": (said("train {place.root}/nowhere"), ["nowhere is no party's folder", "tacit init"]),
    "wrong folder": (said("train {place.root}"), ["has no party.toml", "--folder"]),
    "a file for a folder": (said("align {place.airline}/party.toml"), ["is a file", "name the party's folder"]),
    "status of no party": (said("status {place.root}"), ["is no party's folder", "tacit init"]),
    "folder named twice": (said("train {place.airline} --folder {place.airline}"), ["say the same", "give one"]),
    "made twice": (said("init --role label {place.airline}"), ["holds party.toml", "choose another folder"]),
    "odd name": (said("init --role label {place.root}/A_B"), ["'A_B' can't be a party's name", "a-z, 0-9"]),
    "odd role": (said("init --role both {place.root}/x"), ["--role", "'both' is not one of 'label', 'features'"]),
    "no role": (said("init {place.root}/x"), ["missing option '--role'", "label, features"]),
    # party.toml
    "typo in a key": (settings("training.threads", "training.thread"), ["party.toml", "did you mean threads?"]),
    "wrong type": (settings("threads = 1", 'threads = "one"'), ["[training] threads", "valid integer", "'one'"]),
    "no quotes": (settings('name = "airline"', "name = airline"), ["not valid TOML", "line 2", "correct that line"]),
    "another name": (settings('"airline"', '"airlines"'), ["party.toml says name = 'airlines'", "write that name"]),
    "the other's role": (
        settings('role = "label"', 'role = "features"'), ["role: this file was written for the role \"label\""],
    ),
    "role misspelt": (settings('"label"', '"lable"'), ["role", "'label' or 'features'", "not 'lable'"]),
    "no port": (settings('127.0.0.1:', '127.0.0.1.'), ["[network] listen", "is no address", "host and port"]),
    "listen and connect": (settings("network.listen", "network.connect"), ["listen: is missing", "add it"]),
    "limit 1.5": (settings('role = "label"', 'role = "label"\nlimit = 1.5'), ["limit: 1.5 is not between 0.5 and 1"]),
    "protection misspelt": (
        settings(NONE, 'protect.gradient.name = "matchd"'), ["gradient.name: there is no", "did you mean matched?"],
    ),
    "strength out of range": (
        settings(NONE, 'protect.gradient = { name = "matched", leak_auc = 1.6 }'), ["leak_auc: 1.6 is not between"],
    ),
    "two strengths": (
        settings(NONE, 'protect.gradient = { name = "matched", leak_auc = 0.6, scale = 2.0 }'), ["keep one"],
    ),
    # the contract
    "no contract": (gone("contract.toml", "align {place.airline}"), ["contract.toml is missing", "contract --new"]),
    "contract twice": (said("contract --new {place.airline}"), ["contract.toml exists already", "edit it"]),
    "no epochs": (agreed("epochs = 1", "epochs = 0"), ["epochs", "or equal to 1", "for example epochs = 3"]),
    "party misspelt": (agreed("widths.airport", "widths.airprt"), ["'airport' has no width", "'airprt' is no feature"]),
    "not in the contract": (
        agreed('label_party = "airline"', 'label_party = "railway"'), ["this party is 'airline'", "has none such"],
    ),
    # keys and certificates
    "peer not trusted": (gone("trusted/airport.crt", "align {place.airline}"), ["airport is trusted", "tacit trust"]),
    "own certificate": (said("trust {place.airline}/airline.crt --folder {place.airline}"), ["own certificate"]),
    "a key for a certificate": (
        said("trust {place.airline}/keys/party.key --folder {place.airport}"), ["private key", "its .crt file"],
    ),
    "no certificate": (
        said("trust {place.airline}/party.toml --folder {place.airport}"), ["party.toml: no certificate", "ask"],
    ),
    "a certificate that is not there": (said("trust {place.root}/no.crt --folder {place.airport}"), ["no.crt", "path"]),
    "keys for all to read": (mode("keys/party.key", 0o644, "train {place.airline}"), ["mode 0644", "chmod 600"]),
    "no key": (gone("keys/party.key", "train {place.airline}"), ["party.key can't be read", "backup"]),
    # data
    "no data": (gone("data.parquet", "align {place.airline}"), ["data.parquet can't be read", "check the path"]),
    "not a table": (written("data.parquet", b"id,y\n1,0\n"), ["data.parquet can't be read", "what its name says"]),
    "empty file": (written("data.parquet", b""), ["data.parquet can't be read", "what its name says"]),
    "a spreadsheet": (settings("data.parquet", "data.xlsx"), ["data.xlsx is neither", "convert it"]),
    "no id column": (settings('ids = ["id"]', 'ids = ["flight"]'), ["no column 'flight'; it has: id, y, x", "correct"]),
    "no rows": (lambda place: place.table(id=[], y=[], x=[]) or f"align {place.airline}", ["no row has an id"]),
    "no label column": (
        lambda place: place.edit("party.toml", '"y"', '"late"') or place.aligned() or f"train {place.airline}",
        ["has no column 'late'", "correct the names"],
    ),
    "three labels": (labels([one % 3 for one in IDS]), ["row 2 (counted from 0, id '2') has the label 2", "0 or 1"]),
    # tables of one's own
    "decimal commas": (
        columns("x", ["1,5" for _ in IDS]), ["column 'x' has decimal commas", "row 0", "write 1.5 with a point"],
    ),
    "a date for a number": (columns("x", ["2014-01-19" for _ in IDS]), ["column 'x'", "'2014-01-19'", "row 0"]),
    "a word for a label": (labels(["churned" if one % 2 else "stayed" for one in IDS]), ["label 'stayed'", "positive"]),
    "a third word for a label": (
        lambda place: place.edit("contract.toml", "run =", 'positive = "yes"\nrun =')
        or labels([["yes", "no", "maybe"][one % 3] for one in IDS])(place),
        ["positive = 'yes'", "more than one value", "'maybe' (row 2", "class_names"],
    ),
    "a label that nobody has": (
        lambda place: place.edit("contract.toml", "run =", 'positive = "won"\nrun =')
        or labels([["yes", "no"][one % 2] for one in IDS])(place),
        ["positive = 'won'", "no row has that", "agree on one of these"],
    ),
    "limit = 0,6": (
        settings('role = "label"', 'role = "label"\nlimit = 0,6'), ["party.toml", "write 0.6 with a point"],
    ),
    "a table with semicolons": (
        lambda place: place.edit("party.toml", "data.parquet", "data.csv")
        or written("data.csv", b"id;y;x\n1;0;2\n")(place), ["data.csv", "no column 'id'", "id;y;x"],
    ),
    "a table that is not UTF-8": (
        lambda place: place.edit("party.toml", "data.parquet", "data.csv")
        or written("data.csv", b"id,y\nStra\xdfe,0\n")(place), ["data.csv", "is not UTF-8", "save the"],
    ),
    "nothing aligned": (said("train {place.airline}"), ["nothing is aligned for the run 'small'", "tacit align"]),
    # what is not there yet
    "no ledger": (said("ledger {place.airline}"), ["has no ledger yet", "an alignment makes one"]),
    "no model": (said("export {place.airline} --out {place.root}/m.safetensors"), ["model.safetensors is missing"]),
    "no record": (said("audit {place.airline}"), ["nothing is recorded there", "checkpoint"]),
    "nothing to audit": (said("audit"), ["nothing to audit", "--messages"]),
    # somebody else's files
    "unequal lengths": (lambda place: place.pair(G, Y[:90]), ["labels is of shape (90,)", "one value for each row"]),
    "three kinds": (lambda place: place.pair(G, np.arange(100) % 3), ["m.npz:labels holds 3 kinds", "one against all"]),
    "one kind": (lambda place: place.pair(G, 0 * Y), ["m.npz:labels holds 1 kind", "both classes"]),
    "not finite": (lambda place: place.pair(NAN, Y), ["m.npz:gradients: row 3", "not finite", "leave such rows out"]),
    "limit above 1": (lambda place: place.pair(G, Y) + " --limit 1.5", ["--limit", "less than or equal to 1"]),
    "limit below a coin flip": (lambda place: place.pair(G, Y) + " --limit 0.4", ["0.4 is not between 0.5 and 1"]),
    "unknown side": (lambda place: place.pair(G, Y) + " --side both", ["'both' is not one of", "'features'"]),
    "no inputs": (
        lambda place: place.pair(G, Y) + " --side label", ["m.npz holds no array 'embeddings'", "the other --side"],
    ),
    "no place for a report": (said("audit --messages m.npz"), ["--out is missing", "which folder"]),
    "messages not there": (said("audit --messages no.npz --out {place.root}/o"), ["no.npz is not there"]),
    "out on a file": (
        said("audit --messages m.npz --out {place.airline}/party.toml"), ["can't be made a folder"],
    ),
    "out not writable": (said("demo --out /proc/demo"), ["--out /proc/demo", "choose another path"]),
    # the lab
    "unknown data set": (said("sweep --data adlt --out {place.root}/o"), ["adlt", "adult"]),
    "unknown protection": (said("sweep --protect marvel --out {place.root}/o"), ["no protection 'marvel'", "marvell"]),
    "unknown attack": (said("sweep --attacks nrom --out {place.root}/o"), ["--attacks nrom", "norm"]),
    "limit of a choice": (said("choose --limit 1.5"), ["--limit 1.5", "take one such as 0.6"]),
    "no sweep": (said("choose --from {place.root}/no.parquet"), ["there is no", "no.parquet"]),
    "a limit in per cent": (said("choose --label-limit 60"), ["limit = 60", "as 0.6"]),
    "half of a results file": (
        written("data.parquet", b"PAR1", "choose --limit 0.6 --from {place.airline}/data.parquet"),
        ["data.parquet can't be read", "sweep again"],
    ),
    "a page of nothing": (said("dashboard {place.root}/nowhere"), ["nowhere does not exist", "name the folder"]),
    "ledger of nobody": (said("ledger {place.root}/nobody"), ["nobody is no folder", "--folder"]),
    "scored before trained": (
        said("predict {place.airline}/data.parquet --out {place.root}/s.csv --folder {place.airline}"), ["tacit train"],
    ),
    "scores without an ending": (
        said("predict {place.airline}/data.parquet --out {place.root}/o --folder {place.airline}"),
        ["--out", "has no ending", ".parquet or .csv"],
    ),
    "unknown device": (said("sweep --device gpu --out {place.root}/o"), ["no device 'gpu'", "auto, cpu, cuda"]),
    # the command line itself
    "verb misspelt": (said("trian"), ["no such command 'trian'", "Did you mean 'train'", "tacit --help"]),
    "option misspelt": (said("train --foldr x"), ["no option --foldr", "did you mean --folder?", "tacit train --help"]),
    "too few rows": (said("demo --rows 5"), ["--rows", "4096"]),
    "no unit of time": (said("align --wait 10"), ["--wait", "'10' is no time", "write 90s, 10m, 2h or 1d"]),
    "a word for a number": (said("demo --seed many"), ["--seed", "integer"]),
}  # fmt: skip


@pytest.mark.parametrize(("make", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_in_a_line(place, tacit, make, words):
    code, told = tacit(make(place))
    assert code == 2, told
    assert "Traceback" not in told
    assert told.startswith("tacit: ")
    assert len(told.splitlines()) <= 4, told
    assert all(word in told for word in words), told
    assert not (place.root / "o").exists(), "nothing is left behind"


def test_there_are_mistakes_enough():
    assert len(MISTAKES) >= 60


# --- where a peer takes part -----------------------------------------------------------------------------------------


def test_the_port_is_taken(place, tacit):
    with socket.create_server(("127.0.0.1", place.port)):
        code, told = tacit(f"align {place.airline}")
    assert code == 3
    assert told.count("\n") == 1
    assert f"can't listen on 127.0.0.1:{place.port}" in told
    assert "Address already in use" in told


def test_the_contracts_differ(place, tacit):
    """The airline waits with another contract than the airport's."""
    airline = Folder(place.airline)
    place.edit("contract.toml", "epochs = 1", "epochs = 2")
    agreed, refused = airline.contract, []

    def wait():
        link = door.accept(20)
        try:
            meeting.said_hello(link, airline, agreed)
        except RefusedError as error:
            refused.append(error.field)
            last_words(link, error)

    with meeting.server(airline, agreed, meeting.alignment_limits()) as door:
        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        code, told = tacit(f"align {place.airport} --quiet")
        waiting.join(20)
    assert (code, refused) == (3, ["contract"])
    assert "contract.toml differs between airport and airline in epochs: it must be the same file" in told
    assert "Traceback" not in told


def test_another_certificate_is_pinned(place, tacit):
    """The airport has pinned one that the airline no longer has."""
    (place.airport / "trusted" / "airline.crt").write_bytes(certificates.create("airline").cert_pem)
    airline = Folder(place.airline)
    with meeting.server(airline, airline.contract, meeting.alignment_limits()):
        code, told = tacit(f"align {place.airport} --quiet")
    assert code == 3
    assert "shows another one: ask airline which is right, by phone" in told
    assert told.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(place, tacit):
    (place.airline / "runs").chmod(0o500)
    code, told = tacit(f"align {place.airline}")
    assert code == 2
    assert "can't be made a folder" in told


# --- in a process of its own -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("trian", 2, "did you mean 'train'"),
        ("audit", 2, "there is nothing to audit"),
        ("--debug audit", 2, "traceback"),
    ],
)
def test_the_same_in_a_process(line, code, words):
    command = [sys.executable, "-m", "tacit", *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "TACIT_DEBUG": "0"})
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr.lower()
    assert ("Traceback" in done.stderr) == ("--debug" in line)
