"""The report of a training in one exchange: what each side sent, the bound on it, and what was measured."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.align.encoder import Inputs
from tacit.company.aligned import aligned
from tacit.company.departures import counted_book, disclosed
from tacit.company.folder import Folder
from tacit.company.overrides import overrides
from tacit.company.verdict import now, run_subject
from tacit.config import Exchange
from tacit.errors import UsageError
from tacit.exchange import measured
from tacit.exchange.common import own_inputs, seed_of
from tacit.exchange.feature_party import home_of, shown
from tacit.exchange.label_party import Answers, mechanism_of, received_of
from tacit.exchange.learn import load_bottom
from tacit.labels.book import Book, open_book
from tacit.labels.label_bound import LabelBound
from tacit.labels.mechanisms import Mechanism, described, read_mechanism
from tacit.labels.records import Summary
from tacit.progress import Progress
from tacit.report.document import Leak, NotTested, Report
from tacit.report.exchanged import Bounded, Charged, ColumnRead, Departure, Exchanged, Figure, Released
from tacit.report.status import read_run
from tacit.report.words import count, spelled

_CHARGES = 12  # lines about units, the most first
_CANARIES = 100_000  # rows that do not exist, at most


def exchange_report(
    folder: Folder,
    *,
    limit: float | None = None,
    again: bool = False,
    repeat: Sequence[str] = (),
    progress: Progress = lambda *_: None,
) -> Report:
    """The report of a party's run, which is over.

    A limit takes the place of that in party.toml; a label party's was built into its coins. `again` attacks what was
    sent once more, and draws every flipped label of the book again. `repeat` are commands that make this report again.
    """
    where = folder.run_folder(folder.one_shot)
    label = folder.config.role == "label"
    if not (where / ("figures.json" if label else "delivered")).exists():
        raise UsageError(f"{where}: this training is not over: `tacit train` resumes")
    if label and limit is not None:
        raise UsageError(f"{where}: its limit is a bound, and can't be another one afterwards: leave --limit out")
    limit = folder.config.limit if limit is None else limit
    report = _label(folder, where, again, progress) if label else _features(folder, where, limit, again, progress)
    commands = tuple(repeat) or (f"tacit audit {shlex.quote(str(where))}",)
    return report.model_copy(update={"repeat": commands, "overrides": overrides(where), "disclosed": disclosed(folder)})


def _departures(folder: Folder, where: Path) -> tuple[Departure, ...]:
    """What left in the exchange itself."""
    before = {(one.what, one.to) for one in disclosed(folder)}
    left = [Departure(**one) for one in read_run(where)["left"]]
    return tuple(one for one in left if (one.what, one.to) not in before)


# --- labels ----------------------------------------------------------------------------------------------------------


def _label(folder: Folder, where: Path, again: bool, progress: Progress) -> Report:
    progress("measuring what was sent", 0, 1)
    answers = Answers(folder, aligned(folder), mechanism_of(folder, folder.one_shot))
    if answers.mechanism is None:
        return _no_label(folder, where, answers)
    answers.prepare()
    label_bound, limit = answers.label_bound(), folder.config.limit
    train, mechanism, labels = answers.train, answers.mechanism, answers.asked.labels
    column, checked = folder.table.label, ""
    assert column is not None  # a label party's settings were checked
    with closing(open_book(folder.path / "coins", folder.secret)) as book:
        coins = book.coins(column, answers.target.definition, folder.table.coin_epoch)
        drawn = measured.canaries(coins, mechanism, min(_CANARIES, max(1000, train)), folder.secret)
        bounded = _bounded(folder, label_bound, book)
        if again:
            found = book.check()
            checked = (
                f"All {found.bits:,} randomized labels of {count(found.releases, 'exchange')} were drawn again, and "
                "are what the secret and the labels as they were first sent give."
            )
    told_truth = measured.told_truth(mechanism, answers.sent, labels)
    figures = [
        _area(
            "labels told by what was sent", told_truth, mechanism.auc,
            "What left against the true labels of the training rows, as somebody sees it who knows nothing else.",
        ),
        _area(
            "canaries", drawn, mechanism.auc,
            "Rows that do not exist, with fair coins as labels, through the same coins: nothing but what is sent tells "
            "of them.",
        ),
        *_beyond_columns(folder, where, answers, labels),
        *_private(where),
    ]  # fmt: skip
    told = tuple(one for one in figures if one is not None)
    over = any(one.held is False for one in told) or (limit is not None and label_bound.auc > limit + 1e-9)
    return Report(
        made=now(),
        subject=run_subject(folder, described(mechanism), train, 1),
        limit=limit,
        verdict="broken" if over else "held",
        worst=_bounding(label_bound.auc),
        exchange=Exchanged(
            label_bound=bounded, figures=told, departures=_departures(folder, where), checked=checked, **_worth(where)
        ),
        not_tested=_NEVER_LABELS,
        assumptions=_ASSUMED_LABELS,
    )


def _no_label(folder: Folder, where: Path, answers: Answers) -> Report:
    """The report of a run in which no label was sent."""
    label_bound, bounded = answers.label_bound(), None
    if (folder.path / "coins").exists():
        with closing(open_book(folder.path / "coins", folder.secret)) as book:
            bounded = _bounded(folder, label_bound, book)
    return Report(
        made=now(),
        subject=run_subject(folder, "no label was sent", answers.train, 1),
        limit=folder.config.limit,
        verdict="no limit" if folder.config.limit is None else "held",
        worst=_bounding(label_bound.auc),
        exchange=Exchanged(
            label_bound=bounded or _bounded(folder, label_bound, None), figures=tuple(_private(where)),
            departures=_departures(folder, where), **_worth(where),
        ),
        not_tested=_NEVER_LABELS,
        assumptions=_ASSUMED_LABELS[1:2],
    )  # fmt: skip


def _bounded(folder: Folder, label_bound: LabelBound, book: Book | None) -> Bounded:
    total = Summary("row", (), (), 0) if book is None else book.summary()
    config = folder.config
    return Bounded(
        **{**label_bound.as_dict(), "parameters": json.dumps(label_bound.parameters)},
        budget=config.spendable,
        odds_budget=config.odds_budget,
        releases=len(total.releases),
        labels=total.labels,
        charges=tuple(
            Charged(units=one.units, auc=one.auc, odds=one.odds, through=one.releases)
            for one in total.charges[:_CHARGES]
        ),
    )


def _area(name: str, found: measured.Area | None, most: float | None, about: str) -> Figure | None:
    if found is None:
        return None
    ends = found.estimate
    return Figure(
        name=name, kind="measurement", value=ends.value, low=ends.low, high=ends.high, most=most,
        held=None if most is None else found.holds(most), about=f"{about} {found.rows:,} rows.",
    )  # fmt: skip


def _beyond_columns(folder: Folder, where: Path, answers: Answers, labels: NDArray[np.int64]) -> list[Figure | None]:
    """What partners tell of labels without what was sent and with it, as far as embeddings show what they have."""
    contract, received = folder.one_shot, received_of(folder, aligned(folder))
    columns = np.concatenate([received.codes(name) for name in contract.feature_parties], axis=1)[: len(labels)]
    mechanism = answers.mechanism
    assert mechanism is not None  # else no label was sent
    gain = measured.added(mechanism, columns, answers.sent, labels, seed=seed_of(folder))
    if gain is None:
        return []
    most = gain.without.value + mechanism.auc - 0.5
    without = _area(
        "labels told by partners' embeddings", gain.without, None,
        "Trees on what partners sent you, the true labels of half of the training rows known: what their columns tell "
        "without what you sent, as far as embeddings show it.",
    )  # fmt: skip
    together = _area(
        "labels told by these and what was sent", gain.together, most,
        f"The same with what you sent: it adds {gain.gain.value:+.3f} on these rows, and where labels are independent "
        f"given the columns at most {mechanism.auc - 0.5:.3f}.",
    )  # fmt: skip
    assert together is not None
    return [without, together.model_copy(update={"held": gain.gain.holds(mechanism.auc - 0.5)})]


def _worth(where: Path) -> dict[str, Any]:
    told = json.loads((where / "figures.json").read_bytes())
    return {name: told.get(name, ()) for name in ("worth", "calibration")}  # a run of an older version has none


def _private(where: Path) -> list[Figure]:
    told = json.loads((where / "figures.json").read_bytes())
    sides = (("figures", "with partners"), ("alone", "without partners"))
    return [
        Figure(
            name=f"{spelled(name)} {words}", kind="private", value=value,
            about="Of your private model, on the test rows; it never leaves.",
        )
        for key, words in sides for name, value in told[key].items()
    ]  # fmt: skip


# --- features --------------------------------------------------------------------------------------------------------


def _features(folder: Folder, where: Path, limit: float | None, again: bool, progress: Progress) -> Report:
    contract, rows = folder.one_shot, aligned(folder)
    train = rows.train
    inputs = own_inputs(folder, rows)
    exchange, codes = contract.exchange, np.load(where / "release" / "codes.npy")
    audit = json.loads((where / "release" / "release.json").read_bytes())["audit"]
    if again:
        with counted_book(folder):  # one that has forgotten something would let less be attacked together
            pass
        audit = home_of(folder, rows, inputs, progress).attack(codes).as_dict()
    held_out: list[Figure | None] = []
    if exchange.labels == "flips":
        progress("measuring what came", 0, 1)
        sent = np.load(where / "flips" / "sent.npy")
        mechanism = read_mechanism(json.loads((where / "flips" / "mechanism.json").read_bytes()))
        held_out = _held_out(shown(folder, inputs)[:train], sent, mechanism, seed_of(folder))
    held = limit is None or audit["worst"] <= limit
    return Report(
        made=now(),
        subject=run_subject(folder, exchange.form, train, exchange.numbers),
        limit=limit,
        verdict="no limit" if limit is None else "held" if held else "broken",
        worst=_worst(audit),
        exchange=Exchanged(
            release=_released(folder, codes, audit),
            figures=tuple(one for one in held_out if one is not None),
            departures=_departures(folder, where),
        ),
        not_tested=_NEVER_FEATURES,
        assumptions=(
            f"Decoders know {folder.config.learn.known:.0%} of the rows, with all their columns; somebody who knows "
            "more may read more.",
            *_ASSUMED_FEATURES,
        ),
    )


def _bounding(auc: float) -> Leak:
    return Leak(attack="label bound", on="exchange", value=auc, low=auc, high=auc)


def _worst(audit: dict[str, Any]) -> Leak | None:
    for one in audit["findings"]:  # largest upper end first
        if one["counted"]:
            name = f"{one['decoder']} on {one['column']}, {one['question']}"
            return Leak(attack=name, on="exchange", measure="variance_read", **one["read"])
    return None


def _held_out(inputs: Inputs, sent: Any, mechanism: Mechanism, seed: int) -> list[Figure | None]:
    most = measured.most_of_flips(mechanism)
    found = measured.read_flips(inputs, sent, mechanism, seed=seed)
    return [
        _area(
            "flips told by your own columns", found, most,
            "A linear score on rows that it has not learnt from, against the best that the coin allows whatever labels "
            "are: above it, what came would be no flipped labels.",
        ),
        None if most is None else Figure(
            name="flips told by true labels", kind="bound", value=most,
            about="The best AUC with which anybody who knows every label could tell its flip.",
        ),
    ]  # fmt: skip


def _released(folder: Folder, codes: NDArray[np.uint8], audit: dict[str, Any]) -> Released:
    worst: dict[tuple[str, bool], dict[str, Any]] = {}
    for one in audit["findings"]:
        if one["counted"]:
            worst.setdefault((one["column"], one["given"]), one)
    exchange, learned = folder.one_shot.exchange, folder.run_folder(folder.one_shot) / "learned"
    bottom = load_bottom(learned) if learned.exists() else None
    learner = "your own" if bottom is None or bottom.name == "own" else bottom.name
    names = ("column", "question", "decoder", "rows", "given", "members")
    return Released(
        sentence=_size(exchange), form=exchange.form, bits=exchange.bits, numbers=exchange.numbers,
        smallest=_smallest(codes), labels=exchange.labels, learner=learner,
        columns=tuple(ColumnRead(**{name: one[name] for name in names}, **one["read"]) for one in worst.values()),
        questions=len(audit["findings"]),
        **{name: audit[name] for name in (
            "worst", "sure", "slack", "known", "judged", "matched", "fingerprints", "equal", "notes",
        )},
    )  # fmt: skip


def _size(exchange: Exchange) -> str:
    """How much was sent of a row. No factor: nothing bounds what it tells."""
    return (
        f"Of each row {exchange.form} {'was' if exchange.numbers == 1 else 'were'} sent. There is no bound on what a "
        "group tells about a row; what it was found to tell stands below. The group may tell outright who has a trait "
        "that many share."
    )


def _smallest(codes: NDArray[np.uint8]) -> float:
    """The share of the rows that the smallest of all numbers' groups has."""
    return min(float(np.unique(each, return_counts=True)[1].min()) / len(codes) for each in codes.T)


_NEVER_LABELS = (
    NotTested(
        what="a partner with columns of its own",
        why="only their embeddings are here: the label bound is on what messages add to whatever columns tell",
    ),
    NotTested(what="the private model's predictions", why="they are not sent; shown to a partner they void the bound"),
)
_ASSUMED_LABELS = (
    "Every randomized label comes from keys/secret, which nobody else has, and is the same for all partners and runs.",
    "A bound is arithmetic: it holds whatever anybody computes. A measurement is one look at it, with a 95% interval.",
    "A measurement counts as over its bound from five standard errors on: by chance once in three million reports.",
)
_NEVER_FEATURES = (
    NotTested(what="decoders that nobody has built here", why="a figure is a lower bound of what can be read"),
    NotTested(what="a partner who knows these rows from elsewhere", why="together with that, a group may tell more"),
    NotTested(what="later exchanges about the same rows", why="each is attacked together with all before it, then"),
)
_ASSUMED_FEATURES = (
    "Everything was judged on rows of which decoders were granted nothing, before anything was sent.",
    "What is read goes from 0 to 1: the share of a number's variance, 2 AUC - 1 of a tail, a band, a set of values or "
    "a category, or the share of codes that are right where the most common one is wrong. A band is given by the "
    "shares of the rows between which it lies, from the lowest number on.",
    "Of each column there are two figures: what is read by somebody who has what was sent alone, and, where all other "
    "columns were known, what the sent numbers add to them.",
    "These are measurements, with 95% intervals; the limit is held against the largest upper end.",
)
