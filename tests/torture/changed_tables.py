"""Tables that change between an alignment and its use: whose row it is must never depend on where it stands."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks._companies import contract
from tacit.align.arrays import mapped
from tacit.align.cache import MANIFEST
from tacit.align.encoder import Encoder
from tacit.align.ids import read_ids
from tacit.company.departures import row_keys
from tacit.company.folder import Folder, create
from tacit.labels.book import open_book
from tests.torture.processes import Process, Processes
from tests.torture.workers import Start, state_of
from tests.torture.world import TrialError, check, free_port

Way = Literal["one_shot", "split"]
Action = Literal["train", "predict", "serve"]

SIDES = ("airline", "airport")
WAYS: tuple[Way, ...] = ("one_shot", "split")
ACTIONS: tuple[Action, ...] = ("train", "predict", "serve")

ROWS, FEW = 3000, 12  # of each table, and those that are changed: less than 1%
_CLOSE = 0.005  # of test AUC
_PATIENCE = 150.0
_ONE_SHOT = """
mode = "one_shot"
run = "small"
label_party = "airline"
feature_parties = ["airport"]
alignment.smallest_set = 10
exchange.bits = 3
"""
_PARTY = """
name = "{name}"
role = "{role}"
{limits}
network.{where} = "127.0.0.1:1"
data = {{ path = "data.parquet", ids = ["id"], numeric = ["who", "x"]{label} }}
training = {{ threads = 1, seed = 5 }}
align = {{ allow_edits = true, runs_a_month = 1000 }}
{more}

[serve]
{deadline}
"""
_PROTECT = {
    ("airline", "split"): 'protect.gradient.name = "none"\nbudget = 1',
    ("airline", "one_shot"): "limit = 0.75",
    ("airport", "split"): "protect.embedding = []",
    ("airport", "one_shot"): 'learn = { learner = "linear" }',
}


def table(name: str) -> pl.DataFrame:
    """A company's table: `who` is the number of the id, by which a row is known wherever it lands."""
    draw, who = np.random.default_rng(7), np.arange(ROWS)
    ours, theirs = draw.normal(size=(2, ROWS))
    late = (ours + 2 * theirs + draw.normal(size=ROWS) > 0.5).astype(np.int64)
    whole = pl.DataFrame({"id": who + 10_000, "who": who, "x": ours if name == "airline" else theirs, "late": late})
    of_its_own = whole[: ROWS - 200] if name == "airline" else whole[200:]
    return of_its_own.sample(fraction=1.0, shuffle=True, seed=len(name)).drop([] if name == "airline" else ["late"])


# --- what becomes of a table ------------------------------------------------------------------------------------------


def _on_top(one: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([one.head(50).with_columns(pl.col("id") + 1_000_000, pl.col("who") + 50_000), one])


def _replaced(one: pl.DataFrame) -> pl.DataFrame:
    return one.with_columns(x=pl.when(pl.int_range(pl.len()) < FEW).then(0.0).otherwise("x"))


def _twice(one: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([one, one.tail(FEW)])


CHANGES: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "sorted": lambda one: one.sort("x"),
    "rows on top": _on_top,
    "another format": lambda one: one,
    "values replaced": _replaced,
    "rows gone": lambda one: one.slice(FEW),
    "duplicates added": _twice,
}
SAME = ("sorted", "rows on top", "another format")  # to the last bit


def lost(change: str, name: str) -> set[int]:
    """The numbers of the ids that are no longer in the company's table, each in one row."""
    one = table(name)
    gone = {"rows gone": one.head(FEW), "duplicates added": one.tail(FEW)}.get(change, one.head(0))
    return set(gone["who"].to_list())


def edited(change: str, name: str) -> set[int]:
    """The numbers of the ids whose values are others now."""
    return set(table(name).head(FEW)["who"].to_list()) if change == "values replaced" else set()


def changed(folder: Path, change: str, name: str) -> None:
    """Change the company's table."""
    made, path = CHANGES[change](table(name)), folder / name / "data.parquet"
    if change != "another format":
        made.write_parquet(path)
        return
    made.write_csv(path.with_suffix(".csv"))
    path.unlink()
    settings = folder / name / "party.toml"
    settings.write_text(settings.read_text().replace("data.parquet", "data.csv"))


# --- companies --------------------------------------------------------------------------------------------------------


class World:
    """Companies that have aligned, and copies of them that have trained, for each way to train."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes, self._folder, self._numbers = processes, folder, count()
        self._aligned: dict[Way, Path] = {}
        self._trained: dict[Way, Path] = {}

    def aligned(self, way: Way) -> Path:
        """Companies that have aligned."""
        if way not in self._aligned:
            self._aligned[way] = self._prepared(way)
            self.both(self._aligned[way], "align")
        return self._aligned[way]

    def trained(self, way: Way) -> Path:
        """Companies that have trained on the tables that they aligned."""
        if way not in self._trained:
            self._trained[way] = self.copied(self.aligned(way))
            self.both(self._trained[way], "train")
        return self._trained[way]

    def copied(self, source: Path) -> Path:
        """The same once more, at another port."""
        folder, port = self._folder / f"copy-{next(self._numbers)}", free_port()
        for name in SIDES:
            shutil.copytree(source / name, folder / name)
            if Path(state_of(source / name)).exists():
                shutil.copytree(state_of(source / name), state_of(folder / name))
            settings = folder / name / "party.toml"
            settings.write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", settings.read_text()))
        return folder

    def both(self, folder: Path, verb: str, **more: str) -> None:
        """Let both companies do something until they are done."""
        sides = [self.start(folder, name, verb, more.get(name, "")) for name in SIDES]
        for side in sides:
            code = side.wait(_PATIENCE)
            check(code == 0, f"{verb}: {side.start.folder} ended with {code}: {side.events[-1:]}")

    def start(self, folder: Path, name: str, verb: str, how: str = "") -> Process:
        """Start a company."""
        return self._processes.start(Start(str(folder / name), f"{folder / name}.events", verb, how=how))

    def service(self, folder: Path, name: str) -> Process:
        """Start a company's service."""
        return self._processes.start(Start(str(folder / name), f"{folder / name}.served", "serve"))

    def _prepared(self, way: Way) -> Path:
        folder = self._folder / way
        for name, role in zip(SIDES, ("label", "features"), strict=True):
            label = role == "label"
            limits, more = (_PROTECT[name, way], "") if label and way == "one_shot" else ("", _PROTECT[name, way])
            party = create(folder / name, role="label" if label else "features", name=name).path
            settings = _PARTY.format(
                name=name,
                role=role,
                limits=limits,
                where="listen" if label else "connect",
                label=', label = "late"' if label else "",
                deadline="deadline_ms = 60000" if label else "",  # a busy machine is no slow partner
                more=more,
            )
            (party / "party.toml").write_text(settings)
            (party / "contract.toml").write_text(_ONE_SHOT if way == "one_shot" else contract(epochs=2, batch_size=256))
            table(name).write_parquet(party / "data.parquet")
        for name, other in (SIDES, SIDES[::-1]):
            Folder(folder / name).trust(folder / other / f"{other}.crt")
        return self.copied(folder)


# --- what must be so --------------------------------------------------------------------------------------------------


def look(world: World, change: str, side: str, way: Way, action: Action) -> None:
    """A table changes, and is used: a `TrialError` where any row is taken for another one's."""
    if action == "train":
        _train(world, change, side, way)
    elif action == "predict":
        _predict(world, change, side, way)
    else:
        _serve(world, change, side, way)


def _train(world: World, change: str, side: str, way: Way) -> None:
    folder, reference = world.copied(world.aligned(way)), world.trained(way)
    changed(folder, change, side)
    world.both(folder, "train")
    where = [each / side / "runs" / "small" for each in (folder, reference)]
    (before, _), (after, values) = (_people(each) for each in where[::-1])
    gone = np.isin(before, list(lost(change, side)))
    check(bool((after[~gone] == before[~gone]).all()), "a row was matched to another person")
    check(bool((after[gone] == -1).all()), "an id that is gone, or there twice, has a row")
    truth = table(side).sort("who")
    own = truth["x"].to_numpy()[np.searchsorted(truth["who"].to_numpy(), after[~gone])]
    kept = ~np.isin(after[~gone], list(edited(change, side)))
    check(bool(np.allclose(values[~gone][kept], own[kept], atol=1e-4)), "a row has another one's values")
    if way == "one_shot":
        _booked(folder, change if side == "airline" else "")
    figures = [_figures(each / "airline" / "runs" / "small", way) for each in (folder, reference)]
    if change in SAME:
        for name in SIDES:
            _same(folder / name / "runs" / "small", reference / name / "runs" / "small", way)
        if way == "one_shot":
            check(_embedded(folder) == _embedded(reference), "the book has another row's embedding")
        check(figures[0] == figures[1], f"figures are {figures[0]}, and were {figures[1]}")
    check(abs(figures[0] - figures[1]) <= _CLOSE, f"test AUC is {figures[0]}, and was {figures[1]}")


def _people(where: Path) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Of each aligned row what a party has trained on: who it is, -1 where it knows nothing, and its number `x`."""
    about = json.loads((where / "inputs" / MANIFEST).read_bytes())["files"]["numeric"]
    encoder = Encoder.from_state(json.loads((where / "inputs" / "encoder.json").read_bytes()))
    shift, spread = np.array(encoder.statistics).T
    numbers = mapped(where / "inputs" / "numeric.bin", **about).numpy().astype(np.float64) * spread + shift
    who = np.rint(numbers[:, 0]).astype(np.int64)
    missing = (mapped(where / "inputs" / "numeric.bin", **about).numpy() == 0).all(axis=1)
    return np.where(missing, -1, who), numbers[:, 1]


def _booked(folder: Path, change: str) -> None:
    """What was charged and frozen is the label of the very row, and of nothing that was not sent."""
    airline, truth = Folder(folder / "airline"), table("airline")
    with closing(open_book(airline.path / "coins", airline.secret)) as book:
        keys = book.keys_of(read_ids(truth, "id").hashes, "row")
        stored = dict(book._db.execute("SELECT key, label FROM frozen"))
        (sent,) = book._db.execute("SELECT SUM(rows) FROM releases").fetchone()
    rows = list(zip(truth["who"], truth["late"], map(bytes, keys), strict=True))
    frozen = [(who, label, stored[key]) for who, label, key in rows if key in stored]
    check(all(label == kept for _, label, kept in frozen), "a label was frozen for another row")
    check(not {who for who, _, _ in frozen} & (lost(change, "airline") if change else set()), "a label that is gone")
    check(len(stored) == sent, f"{len(stored)} labels are charged, and {sent} were sent")


def _embedded(folder: Path) -> dict[int, bytes]:
    """What the airport's book says was sent of each id."""
    airport, truth = Folder(folder / "airport"), table("airport")
    keys = map(bytes, row_keys(airport, read_ids(truth, "id").hashes))
    with closing(sqlite3.connect(airport.path / "embeddings" / "book.sqlite")) as db:
        sent = dict(db.execute("SELECT key, codes FROM sent"))
    found = {who: sent.pop(key) for who, key in zip(truth["who"], keys, strict=True) if key in sent}
    check(bool(found) and not sent, f"{len(sent)} embeddings of {len(found)} are of no row of the table")
    return found


def _figures(where: Path, way: Way) -> float:
    if way == "one_shot":
        return float(json.loads((where / "figures.json").read_bytes())["figures"]["test_auc"])
    return float(json.loads((where / "status.json").read_bytes())["history"][-1]["test_auc"])


def _same(where: Path, reference: Path, way: Way) -> None:
    names = ("release/codes.npy", "head", "flips/sent.npy") if way == "one_shot" else ("model.safetensors",)
    files = [path for name in names for path in _files(reference / name)]
    check(bool(files), f"{reference} holds nothing of {names}")
    for path in files:
        other = where / path.relative_to(reference)
        check(other.read_bytes() == path.read_bytes(), f"{other} has other bits than without the change")


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())


def _scores(world: World, folder: Path, match: str) -> dict[int, float]:
    """The scores of all rows of the label party's table as it is now, by id; None where there is none."""
    (source,) = (folder / "airline").glob("data.*")
    asked = folder / f"asked{source.suffix}"
    kept = read_ids(source, "id").rows  # ids must be in one row of a file that is scored
    one = pl.read_parquet(source) if source.suffix == ".parquet" else pl.read_csv(source)
    one = one[kept]
    one.write_parquet(asked) if source.suffix == ".parquet" else one.write_csv(asked)
    how = "\n".join([match, str(asked), str(folder / "scores.parquet")])
    world.both(folder, "predict", airline=how, airport=match)
    found = pl.read_parquet(folder / "scores.parquet")
    return dict(zip(found["id"].cast(pl.Int64).to_list(), found["score"].to_list(), strict=True))


def _as_before(found: dict[int, float], before: dict[int, float], change: str, side: str) -> None:
    others = lost(change, side) | edited(change, side)
    same = [one for one in found.keys() & before.keys() if one - 10_000 not in others]
    check(len(same) >= ROWS - 200 - 2 * FEW, f"{len(same)} rows have a score")
    wrong = [one for one in same if found[one] != before[one]]
    check(not wrong, f"{len(wrong)} rows have another one's score, {wrong[:1]} among them")


def _predict(world: World, change: str, side: str, way: Way) -> None:
    folder, reference = world.copied(world.trained(way)), world.copied(world.trained(way))
    changed(folder, change, side)
    match = ("private", "keyed")[list(CHANGES).index(change) % 2]
    _as_before(_scores(world, folder, match), _scores(world, reference, match), change, side)


def _serve(world: World, change: str, side: str, way: Way) -> None:
    folder, reference = world.copied(world.trained(way)), world.copied(world.trained(way))
    changed(folder, change, side)
    found, before = _served(world, folder), _served(world, reference)
    others = lost(change, side) | edited(change, side) if side == "airport" else set()
    wrong = [one for one, score in found.items() if score != before[one] and one - 10_000 not in others]
    check(not wrong, f"{len(wrong)} rows have another one's score, {wrong[:1]} among them")


def _served(world: World, folder: Path) -> dict[int, float]:
    """Scores of a hundred rows by the service, those that may have changed among them, by id."""
    few = pl.concat([table("airport").head(FEW), table("airport").tail(FEW)])["id"]
    own = table("airline")
    some = pl.concat([own.filter(pl.col("id").is_in(few.implode())), own.head(100 - FEW)]).unique("id")
    services = [world.service(folder, name) for name in SIDES]
    try:
        address = _heard(services[0], "http")["address"].removeprefix("http://")
        _heard(services[0], "connected")
        with closing(http.client.HTTPConnection(address.rstrip("/"), timeout=_PATIENCE)) as line:
            asked = json.dumps({"rows": some.drop("late").to_dicts()})
            line.request("POST", "/score", asked, {"Content-Type": "application/json"})
            answer = line.getresponse()
            said = json.loads(answer.read())
        check(answer.status == 200, f"{answer.status}: {said}")
        return dict(zip(some["id"].to_list(), said["scores"], strict=True))
    finally:
        for service in services:
            service.kill()


def _heard(service: Process, event: str) -> dict[str, Any]:
    """The first of these events, as soon as the service tells of it."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and not service.over:
        for one in service.events:
            if one["event"] == event:
                return one
        time.sleep(0.02)
    raise TrialError(f"{service.start.folder} does not say {event!r}: {service.events}")


def pairs() -> Iterator[tuple[str, str, Way, Action]]:
    """Cases in which each two of change, side, way and action come together."""
    for number, change in enumerate(CHANGES):
        side, way = number % 2, number // 2 % 2
        yield change, SIDES[side], WAYS[way], "train"
        yield change, SIDES[1 - side], WAYS[1 - way], "predict"
        yield change, SIDES[side], WAYS[1 - way], "serve"


def every() -> Iterator[tuple[str, str, Way, Action]]:
    """All of them."""
    yield from product(CHANGES, SIDES, WAYS, ACTIONS)


__all__ = ["CHANGES", "TrialError", "World", "every", "look", "pairs"]
