"""The audit before release: everything that can be read from an embedding is read, on exactly what is about to leave.

The attacker knows some rows with all their columns. It is judged on rows of which it was granted nothing, question by
question (see `tacit.exchange.questions`), and never by a mean: one category that is given away is one too many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.align.encoder import Columns, Inputs
from tacit.errors import TensorError, UsageError
from tacit.exchange import decoders
from tacit.exchange._rows import alike, using_threads
from tacit.exchange.findings import Finding, ReleaseAudit, estimate, largest, surely_read
from tacit.exchange.given import given
from tacit.exchange.questions import LEAST, Draw, Questions, areas, codes_read, outlying, shares
from tacit.exchange.segments import Segments
from tacit.progress import Progress

Floats = NDArray[np.float32]
Rows = NDArray[np.intp]
Codes = NDArray[np.generic]
Beliefs = dict[str, Floats]

GIVEN = 8_000  # how many of the judged rows are also judged with all other columns known

# decoders that learn get lost in many numbers: of a wider embedding they also read so many, the first ones, alone
FIRST = 8

# known rows for each different embedding, on average, whose mean says all there is: nothing is left to be learnt
PLENTY = 100
_WELL = 1000  # likewise, whose means are known well
_GROUPS = 64  # different embeddings up to which rows are judged by their numbers alone
_ANSWERS = 60_000_000  # answers of known rows that are looked up at most
_SEGMENT, _MARGIN = 0.005, 1.3  # the share of the rows that a segment is at least, and the room that drawing needs
_PAIRED = 1_000_000  # known rows among which equal ones are looked for, and unknown ones
_ALIKE = 1 << 17  # of them whose columns are in memory at once


def attack_release(  # each setting of the attack by name; most callers leave most of them as they are
    codes: NDArray[np.generic],
    inputs: Inputs,
    columns: Columns,
    *,
    train: int,
    known: float = 0.5,
    seed: int = 0,
    threads: int = 1,
    progress: Progress | None = None,
    before: NDArray[np.uint8] | None = None,
    others: bool = True,
    known_rows: int = 40_000,
    judged_rows: int = 40_000,
) -> ReleaseAudit:
    """Read rows back from what is about to be sent about them.

    Args:
        codes: the embedding of each row as it would leave: cells, or floating numbers.  (rows, width)
        inputs: the rows.
        columns: the names of their columns.
        train: how many rows, the first ones, the embedding was learnt on; the others are test rows.
        known: the share of the rows that the attacker knows.
        seed: which rows those are, and all that decoders draw.
        threads: that decoders may use.
        progress: called with the part, what is done of it and its total.
        before: what has left of these rows before, in other versions. The embedding is attacked by itself and together
            with that, and what tells more is the audit.  (rows, numbers)
        others: also ask what the embedding adds for somebody who knows all other columns; a third of the time.
        known_rows: of the known rows, how many decoders that learn get at most; look-ups get more.
        judged_rows: of the other rows, how many are judged at most, besides as many of rare categories.
    """
    z = _checked(codes, inputs, train, known)
    tell = progress or (lambda *_: None)
    if before is not None:
        alone, both = (
            attack_release(
                seen, inputs, columns, train=train, known=known, seed=seed, threads=threads, progress=tell,
                others=others, known_rows=known_rows, judged_rows=judged_rows,
            )
            for seen in (z, np.concatenate([z, before], axis=1))
        )  # fmt: skip
        note = (
            f"attacked together with {before.shape[1]} numbers a row that left before, in other versions: at worst "
            f"{both.worst:.3f}; by itself: {alone.worst:.3f}"
        )
        more = max(alone, both, key=lambda audit: audit.worst)
        return replace(more, sure=max(alone.sure, both.sure), notes=(note, *more.notes))
    drawn = Draw.of(len(z), train, known, seed, known_rows, judged_rows)
    questions = Questions.of(inputs, columns, drawn.fit, len(drawn.judged), len(drawn.judged) + len(drawn.spare), z)
    if not len(questions):
        raise UsageError("no column of the known rows varies, so there is nothing to hide: leave the audit out")
    with using_threads(threads):
        attack = _Attack(z, questions, drawn, seed, tell)
        found = [*attack.findings(), *(attack.given() if others else ())]
        conjunctions = list(attack.conjunctions())
    return _summary(found, conjunctions, attack)


def _checked(codes: Codes, inputs: Inputs, train: int, known: float) -> Codes:
    z = np.asarray(codes)
    if z.ndim != 2 or z.shape[0] != len(inputs) or not z.shape[1]:
        raise TensorError(f"the embedding is {z.shape} for {len(inputs)} rows: pass one row of numbers for each")
    if z.dtype != np.uint8:
        z = z.astype(np.float64)
        if not np.isfinite(z).all():
            raise TensorError("the embedding holds numbers that are not finite: look for overflow in the bottom")
    if not 0 <= train <= len(z):
        raise UsageError(f"train = {train} of {len(z)} rows: pass how many of the first rows were learnt on")
    check_enough(len(z), known)
    return z


def check_enough(rows: int, known: float) -> None:
    """See that so many rows can be attacked at all, before anybody pays for labels of them."""
    if isinstance(known, bool) or not 0 < known < 1:
        raise UsageError(f"known = {known!r} is out of range: it is a share between 0 and 1, for example 0.5")
    if min(known, 1 - known) * rows < 2 * LEAST:
        raise UsageError(
            f"{rows} rows, {known:.0%} of them known, are too few to audit: at least {2 * LEAST} must be known, and "
            "as many not: align more rows"
        )


class _Attack:
    """One run of all decoders."""

    def __init__(self, z: Codes, questions: Questions, drawn: Draw, seed: int, tell: Progress) -> None:
        self.questions, self.drawn = questions, drawn
        self.z, self.seed, self.tell = z, seed, tell
        looked_up = drawn.looked_up[: max(len(drawn.fit), _ANSWERS // len(questions))]
        if len(drawn.fit) >= _WELL * (1 + alike(z[drawn.fit]).max()):
            looked_up = drawn.fit  # more rows would say the same
        asked = self.asked = np.concatenate([drawn.check, drawn.judged, drawn.rare(questions)])
        self.looked_up = len(looked_up)
        self.table = decoders.Table.look_up(z[looked_up], z[asked])
        self.answers = questions.answers(looked_up)  # those fitted come first
        self.truth = questions.answers(asked)
        self.mean = self.answers.mean(0, dtype=np.float64)
        self.beliefs = self._beliefs(looked_up, asked)
        plain = "network" not in self.beliefs and len(self.table.counts) <= _GROUPS and bool((self.table.of >= 0).all())
        self.group = self.table.of if plain else None  # rows of one embedding, of which everybody believes the same
        self.slices = self._slices(asked)

    def _beliefs(self, looked_up: Rows, asked: Rows) -> Beliefs:
        """What each decoder says about the rows that choose between them, then about those judged."""
        fine = decoders.ranked(self.z, self.drawn.fit)
        self.level = fine.astype(np.uint8, copy=False)
        first = [] if self.z.shape[1] <= FIRST else [(f" of the first {FIRST}", slice(FIRST))]
        decoding: dict[str, Callable[[], Floats]] = {}
        for words, some in (("", slice(None)), *first):
            decoders_of = self._decoders(fine[:, some], looked_up, asked)
            decoding |= {name + words: decode for name, decode in decoders_of.items()}
        found: Beliefs = {}
        for done, (name, decode) in enumerate(decoding.items()):
            self.tell("decoders", done, len(decoding))
            found[name] = decode()
        self.tell("decoders", len(decoding), len(decoding))
        numbers = len(self.questions.numbers)
        alone = {
            f"together{words}": decoders.together([belief for name, belief in found.items() if words in name], numbers)
            for words, _ in first
        }
        return found | alone | {"together": decoders.together(list(found.values()), numbers)}

    def _decoders(self, fine: NDArray[Any], looked_up: Rows, asked: Rows) -> dict[str, Callable[[], Floats]]:
        """All that read some of an embedding's numbers; those that learn only where looking up does not do."""
        fit, answers, level = self.drawn.fit, self.answers[: len(self.drawn.fit)], fine.astype(np.uint8, copy=False)
        numbers, table = len(self.questions.numbers), self.table
        if fine.shape[1] < self.z.shape[1]:
            table = decoders.Table.look_up(self.z[looked_up, : fine.shape[1]], self.z[asked, : fine.shape[1]])
        found: dict[str, Callable[[], Floats]] = {
            "exact": lambda: decoders.exact(table, self.answers),
            "nearest": lambda: decoders.nearest(
                fine[looked_up].astype(np.float32), self.answers, fine[asked].astype(np.float32), table, seed=self.seed
            ),
        }
        if len(looked_up) >= PLENTY * len(table.counts):
            return found
        return found | {
            "forest": lambda: decoders.forest(level[fit], answers, level[asked], seed=self.seed),
            "network": lambda: decoders.network(level[fit], answers, level[asked], numbers=numbers, seed=self.seed),
        }

    def _slices(self, asked: Rows) -> dict[str, NDArray[np.bool_]]:
        """Kinds of rows, each judged apart; which rows are outlying or matched is found out without their answers."""
        matches = self.table.matches
        usual = np.arange(len(asked)) < len(self.drawn.check) + len(self.drawn.judged)  # not looked for as rare
        return {
            "all": usual,
            "train": usual & (asked < self.drawn.train),
            "test": usual & (asked >= self.drawn.train),
            "outlying": usual & outlying(self.questions.inputs, self.drawn.fit, asked),
            "matched": usual & (matches > 0) & (matches <= decoders.FEW),
        }

    def findings(self) -> Iterator[Finding]:
        """All figures."""
        for done, (rows, member) in enumerate(self.slices.items()):
            self.tell("attacking what would leave", done, len(self.slices))
            check, judged = np.split(member, [len(self.drawn.check)])
            if judged.sum() < LEAST or (rows != "all" and judged.all()):
                continue
            yield from self._asked(rows, check if check.sum() >= LEAST else np.ones_like(check), judged)
        self.tell("attacking what would leave", len(self.slices), len(self.slices))

    def _asked(self, rows: str, check: NDArray[np.bool_], judged: NDArray[np.bool_]) -> Iterator[Finding]:
        """Each question about some rows, answered by the decoder that is best on known rows of that kind."""
        cut = len(self.drawn.check)
        names, belief = self._chosen(self.beliefs, self.truth, cut, check, group=self.group)
        group = None if self.group is None else self.group[cut:][judged]
        yield from self._judged(rows, names, belief[cut:][judged], self.truth[cut:][judged], group=group)
        if rows == "all":
            yield from self._rare(names, belief[cut:], self.truth[cut:])
        yield from self._codes(rows, check, judged)

    def given(self) -> Iterator[Finding]:
        """Each question with all other columns known: the best decoder with the embedding against the best without."""
        told = partial(self.tell, "attacking with the other columns known")
        cut = min(GIVEN // 4, len(self.drawn.check))
        rows = np.concatenate([self.drawn.check[:cut], self.drawn.judged[:GIVEN]])
        found = given(self.level, self.questions, self.drawn.fit, rows, seed=self.seed, told=told)
        if self.z.shape[1] > FIRST:
            narrow = given(self.level[:, :FIRST], self.questions, self.drawn.fit, rows, seed=self.seed, told=told)
            found |= {f"{name} of the first {FIRST}": beliefs for name, beliefs in narrow.items()}
        start = len(self.drawn.check)
        truth = np.concatenate([self.truth[:cut], self.truth[start : start + len(rows) - cut]])
        sides = [self._chosen({name: each[side] for name, each in found.items()}, truth, cut) for side in (0, 1)]
        (names, belief), (_, before) = sides
        yield from self._judged("all", names, belief[cut:], truth[cut:], before[cut:])
        told(4, 4)

    def conjunctions(self) -> Iterator[Finding]:
        """The segments of a small tree from columns to cells, each read from the embedding."""
        cut, names = len(self.drawn.check), self.questions.names
        judged = np.concatenate([self.drawn.check, self.drawn.judged])
        least = max(_SEGMENT, _MARGIN * LEAST / max(1, len(self.drawn.judged)))
        segments = Segments(self.questions.inputs, names, self.z, self.drawn.fit, least, self.seed)
        if not segments.all:
            return
        known = self.drawn.looked_up[: self.looked_up]
        table = decoders.Table.look_up(self.z[known], self.z[judged])
        answers, truth = segments.answers(known), segments.answers(judged)
        beliefs = {"exact": decoders.exact(table, answers)}
        if "forest" in self.beliefs:  # the embeddings of known rows do not say all there is
            fit = self.drawn.fit
            beliefs["forest"] = decoders.forest(
                self.level[fit], answers[: len(fit)], self.level[judged], seed=self.seed
            )
        tried = [np.nan_to_num(areas(belief[:cut], truth[:cut])[0], nan=-1.0) for belief in beliefs.values()]
        best, decoding = np.stack(tried).argmax(0), list(beliefs)
        belief = np.stack([beliefs[decoding[one]][cut:, place] for place, one in enumerate(best)], axis=1)
        value, error = areas(belief, truth[cut:])
        members = truth[cut:].sum(0).round().astype(np.intp)
        for place in np.flatnonzero(np.isfinite(error) & (members >= LEAST)).tolist():
            segment, read = segments.all[place], estimate(value[place], error[place])
            count, decoder = int(members[place]), decoding[best[place]]
            yield Finding(segment.name, segment.words, "all", False, decoder, count, read, True)

    def _chosen(
        self, beliefs: Beliefs, truth: Floats, cut: int, counted: Any = slice(None), group: Rows | None = None
    ) -> tuple[list[str], Floats]:
        """For each question the decoder that answers it best on the first rows, and what it says about all."""
        names = list(beliefs)
        group = None if group is None else group[:cut][counted]
        tried = [
            self._figures(belief[:cut][counted], truth[:cut][counted], group=group)[0] for belief in beliefs.values()
        ]
        best = np.nan_to_num(np.stack(tried), nan=-1.0).argmax(0)
        chosen = np.stack([beliefs[names[one]][:, place] for place, one in enumerate(best)], axis=1)
        return [names[one] for one in best], chosen

    def _judged(
        self, rows: str, names: list[str], belief: Floats, truth: Floats, before: Floats | None = None,
        group: Rows | None = None,
    ) -> Iterator[Finding]:  # fmt: skip
        """What beliefs about some rows are worth, but for questions that few of them say yes or few say no to."""
        value, error = self._figures(belief, truth, before, group)
        numbers = len(self.questions.numbers)
        members = truth.sum(0).round().astype(np.intp)
        members[:numbers] = len(truth)
        enough = np.minimum(members, len(truth) - members) >= LEAST
        enough[:numbers] = True
        for place in np.flatnonzero(np.isfinite(error) & enough).tolist():
            column, question = self.questions.said(place)
            read = estimate(value[place], error[place])
            yield Finding(column, question, rows, before is not None, names[place], int(members[place]), read, True)

    def _rare(self, names: list[str], belief: Floats, truth: Floats) -> Iterator[Finding]:
        """The questions that were left out for that, each judged with all unknown rows that say yes to it."""
        judged = np.arange(len(truth)) < len(self.drawn.judged)
        for place in range(len(self.questions.numbers), len(self.questions)):
            yes = truth[:, place] > 0.5
            some = judged | yes
            fewer, few = (int(min(said.sum(), (~said).sum())) for said in (yes[judged], yes[some]))
            if fewer >= LEAST or few < 2:
                continue
            value, error = areas(belief[some, place, None], truth[some, place, None])
            column, question = self.questions.said(place)
            read = estimate(value[0], error[0])
            yield Finding(column, question, "all", False, names[place], int(yes[some].sum()), read, few >= LEAST)

    def _figures(
        self, belief: Floats, truth: Floats, before: Floats | None = None, group: Rows | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The figure of each question and its standard error."""
        cut = len(self.questions.numbers)
        numbers, bits = (None, None) if before is None else (before[:, :cut], before[:, cut:])
        first = shares(belief[:, :cut], truth[:, :cut], self.mean[:cut], numbers)
        second = areas(belief[:, cut:], truth[:, cut:], bits, group=group)
        return np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])

    def _codes(self, rows: str, check: NDArray[np.bool_], judged: NDArray[np.bool_]) -> Iterator[Finding]:
        """The share of each categorical column's codes that are read outright."""
        codes, cut = self.questions.inputs.categorical.numpy(), len(self.drawn.check)
        names = self.questions.names[len(self.questions.names) - codes.shape[1] :]
        for column, name in enumerate(names):
            asked = self.questions.asked(column)
            if not asked:
                continue
            usual = np.bincount(codes[self.drawn.fit, column]).argmax()
            ordered, places = np.array(list(asked)), list(asked.values())
            guesses = {key: ordered[belief[:, places].argmax(1)] for key, belief in self.beliefs.items()}
            truth = codes[self.asked, column]
            best = max(guesses, key=lambda key: float((guesses[key] == truth)[:cut][check].mean()))
            true = truth[cut:][judged]
            value, error = codes_read(guesses[best][cut:][judged] == true, true == usual)
            if math.isfinite(error):
                yield Finding(name, "codes", rows, False, best, len(true), estimate(value, error), True)


def _equal(z: Codes, inputs: Inputs, rows: Rows) -> float | None:
    """Of neighbouring pairs of rows that are equal in all columns, the share with equal embeddings."""
    pairs = equal = 0
    for some in _parts(inputs, rows):
        columns = [inputs.categorical.numpy()[some].astype(np.float64), inputs.numeric.numpy()[some]]
        group = alike(np.concatenate(columns, axis=1))
        order = np.argsort(group, kind="stable")
        first = np.flatnonzero(group[order][1:] == group[order][:-1])
        pairs += len(first)
        equal += int((z[some[order[first]]] == z[some[order[first + 1]]]).all(1).sum())
    return equal / pairs if pairs else None


def _parts(inputs: Inputs, rows: Rows) -> Iterator[Rows]:
    """The rows in parts, equal ones in the same part and in their order: all columns of all of them would be large."""
    codes, numeric, parts = inputs.categorical.numpy(), inputs.numeric.numpy(), 1 + len(rows) // _ALIKE
    draw = np.random.default_rng(0)
    first, second = (draw.integers(1, 1 << 63, each.shape[1], np.uint64) for each in (codes, numeric))
    part = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), _ALIKE):
        some = rows[start : start + _ALIKE]
        bits = (numeric[some] + np.float32(0)).view(np.uint32)  # no -0.0, which is 0.0 in other bits
        hashed = (codes[some].astype(np.uint64) * first).sum(1) + (bits * second).sum(1)
        part[start : start + _ALIKE] = (hashed >> np.uint64(32)) % np.uint64(parts)
    for place in range(parts):
        yield rows[part == place]


def _summary(found: list[Finding], conjunctions: list[Finding], attack: _Attack) -> ReleaseAudit:
    """The figures together, with what may be said of the largest."""
    ordered = surely_read([*found, *conjunctions])
    worst, sure, slack = largest(ordered)
    cut, draw = len(attack.drawn.check), attack.drawn
    matches = attack.table.matches[cut : cut + len(draw.judged)]
    return ReleaseAudit(
        findings=ordered, conjunction=max(conjunctions, key=lambda one: one.read.high, default=None),
        worst=worst, sure=sure, slack=slack,
        known={"learnt": len(draw.fit), "looked up": attack.looked_up, "checked": cut},
        judged={name: int(member[cut:].sum()) for name, member in attack.slices.items()},
        matched=float((matches > 0).mean()), fingerprints=float(((matches > 0) & (matches <= decoders.FEW)).mean()),
        equal=_equal(attack.z, attack.questions.inputs, np.concatenate([draw.looked_up[:_PAIRED], draw.judged])),
        notes=_notes(ordered, attack),
    )  # fmt: skip


def _notes(found: tuple[Finding, ...], attack: _Attack) -> tuple[str, ...]:
    questions = attack.questions
    notes = [
        f"{name!r} never varies in the rows known: it is not asked for"
        for place, name in enumerate(questions.names[: questions.inputs.numeric.shape[1]])
        if place not in questions.numbers
    ]
    if "network" not in attack.beliefs:
        notes.append(
            f"the {len(attack.table.counts)} different embeddings have {PLENTY} known rows each or more, on average: "
            "these are looked up, and nothing is learnt from them"
        )
    few = [finding.read.high for finding in found if not finding.counted]
    if few:
        notes.append(
            f"{len(few)} categories, tails or sets have fewer than {LEAST} unknown rows, and nothing is surely read of "
            f"them: so few rows can't show that less than {max(few):.2f} is, and no limit is held against that"
        )
    pooled = sum(code < 0 for _, code in questions.categories)
    if pooled:
        notes.append(
            f"in {pooled} columns categories with very few rows are asked for together, as rare ones, and in sets that "
            "the embedding tells apart"
        )
    return tuple(notes)
