"""Whether a party's own table can be trained on: asked of all its rows, before anything is aligned or sent.

Which rows are aligned is the partner's choice. If a training were refused over the labels or units of those rows, its
refusal would tell about the very rows that the partner has picked; so whatever can be wrong with them is looked for
here, where the partner has no say, and nothing is refused over them later.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align.encoder import Columns, days_of, numbers, row_named, spelled, with_dates
from tacit.align.ids import Ids, Reading, distinct, read_ids
from tacit.align.kinds import kinds
from tacit.align.sources import Source, blocks, check_columns, columns_in, load
from tacit.align.tables import Spelling, labels_error, wrong_labels
from tacit.company.folder import Folder
from tacit.company.ways import way_of
from tacit.config import Contract, Terms
from tacit.errors import DataError, LabelsError, TacitError
from tacit.labels.target import Labels

_MOST = 6  # different values of a label's column that are looked for
_LONGEST = 60  # characters of an id that are shown
_ROW = re.compile(r"row (\d+) \(counted from 0\)")  # as `row_named` says it


@dataclass(frozen=True)
class _Look:
    """What is looked for in a column."""

    look: Callable[[pl.DataFrame, NDArray[np.int64]], None]  # takes rows of the table with their numbers
    end: Callable[[], None] = lambda: None  # after all of them


def check_folder(folder: Folder) -> None:
    """Refuse what `align` and `train` would: of settings, contract, past runs and the whole table, all at once."""
    _raise(list(_problems_of(folder)))


def _problems_of(folder: Folder) -> Iterator[TacitError]:
    terms = folder.terms
    try:
        folder.check_pair(terms)
        way_of(terms).plan(folder)
    except TacitError as error:
        yield error
    if folder.config.data is None or not folder.data.exists():  # of a query nothing is here yet
        if folder.config.data is not None and folder.table.query is None:
            yield from problems(folder, folder.data)
        return
    try:
        own = usable_ids(folder, folder.data)
        _check_size(len(own), terms)
    except TacitError as error:
        yield error
        own = None
    yield from problems(folder, folder.data, own)


def usable_ids(folder: Folder, source: Source, columns: Sequence[str] | None = None) -> Ids:
    """The ids of a party's table that can be aligned today; those of rows whose label is not complete are none."""
    own, rule = read_ids(source, folder.table.ids if columns is None else columns), folder.config.label.rule
    if rule is None:
        return own
    days, column = rule
    check_columns(source, [column])
    before, parts, done = datetime.now(UTC).date() - timedelta(days), list[NDArray[np.bool_]](), 0
    for block in blocks(source, [column]):
        with_dates(block, Columns(dates=(column,)), np.arange(done, done + len(block)))  # an error names the row
        parts.append((days_of(block[column]) < before).fill_null(False).to_numpy())
        done += len(block)
    ripe = np.concatenate(parts)[own.rows]
    young = len(own) - int(ripe.sum())
    if young == len(own):
        raise DataError(f"no row of {source} has a complete label: {folder.config.label.complete!r} leaves all out")
    report = replace(own.report, young=young, kept=own.report.kept - young)
    return Ids(own.hashes[ripe], own.rows[ripe], report)


def extra_columns(folder: Folder) -> tuple[str, ...]:
    """Columns of the party's table that nothing is learnt from, and that its rules are about."""
    test = (folder.terms.test.column,) if folder.terms.tester == folder.config.name else ()
    return (*folder.config.label.columns, *(name for name in test if name is not None))


def held_out(terms: Terms, source: Source, rows: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """Which of some rows of a party's table are for testing, by its column of dates or of groups.  (rows,)"""
    test, name = terms.test, str(terms.test.column)
    column = load(source, rows, [name])[name]
    if test.after is not None:
        return (days_of(column) >= test.after).fill_null(False).to_numpy()
    words = column.cast(pl.String).to_frame("group").with_row_index("row")
    group = pl.coalesce("group", pl.format("row {} has none", "row"))  # it is one of its own
    groups = words.select(group.alias("group"))
    values = groups["group"].unique().to_list()
    drawn = [hashlib.blake2b(f"{seed} {value}".encode(), digest_size=8).digest() for value in values]
    chosen = {
        value for value, one in zip(values, drawn, strict=True) if int.from_bytes(one) < terms.test_share * 2.0**64
    }
    return groups["group"].is_in(list(chosen)).to_numpy()


def _check_size(rows: int, terms: Terms) -> None:
    """Refuse a table of more or fewer ids than the contract allows."""
    least, most = terms.alignment.smallest_set, terms.alignment.largest_set
    if not least <= rows <= most:
        name = "smallest_set" if rows < least else "largest_set"
        raise DataError(
            f"{rows:,} rows can be aligned, and the contract allows {least:,} to {most:,}: bring others, or agree on "
            f"another [alignment] {name}"
        )


def _raise(found: Sequence[TacitError]) -> None:
    if found:
        raise found[0] if len(found) == 1 else DataError("\n".join(dict.fromkeys(str(error) for error in found)))


def check_table(folder: Folder, source: Source, own: Ids) -> None:
    """Refuse a party's table where anything in it can't be used as the contract and party.toml say.

    Everything that is wrong is told at once, each with its column and the first row. `own` are the table's ids.
    """
    _raise(list(problems(folder, source, own)))


def problems(folder: Folder, source: Source, own: Ids | None = None) -> Iterator[TacitError]:
    """All that is wrong with a party's table; of what hangs on its ids nothing where these can't be read."""
    table = folder.table
    unit = "row" if isinstance(folder.terms, Contract) else folder.terms.exchange.unit
    units = (unit,) if table.label is not None and unit != "row" else ()
    named = (*table.ids, *table.columns, *table.coin_id, *units, *extra_columns(folder))
    names = list(dict.fromkeys(named))
    try:
        check_columns(source, names)
        yield from _looked_through(folder, source, names, units)
        if own is not None and table.coin_id and table.coin_id != table.ids:
            names_of(source, table.coin_id, own)
    except TacitError as error:
        yield error


def _looked_through(folder: Folder, source: Source, names: Sequence[str], units: Sequence[str]) -> Iterator[TacitError]:
    """The first mistake in each column, or what is wrong with it as a whole."""
    looks = [*_own_columns(folder), *map(_units, units)]
    if folder.table.label is not None:
        looks.append(_labels(folder))
    done = 0
    for block in blocks(source, names):
        rows = np.arange(done, done + len(block))
        for one in tuple(looks):
            try:
                one.look(block, rows)
            except TacitError as error:
                looks.remove(one)
                yield _with_id(error, block.select(folder.table.ids), done)
        done += len(block)
    if not done:
        yield DataError(f"{source} has no rows: name the table of this party")
        return
    for one in looks:
        try:
            one.end()
        except TacitError as error:
            yield error


def _with_id(error: TacitError, ids: pl.DataFrame, start: int) -> TacitError:
    """The same about a row of a block, with its id: by that its owner finds it wherever the table is open."""

    def named(found: re.Match[str]) -> str:
        parts = " ".join(str(part) for part in ids.row(int(found[1]) - start))
        return f"row {found[1]} (counted from 0, id {parts[:_LONGEST]!r})"

    return type(error)(_ROW.sub(named, str(error), count=1))


def doubts(folder: Folder, source: Source) -> list[str]:
    """Columns that are learnt from though nothing can be learnt of them as they are."""
    used = folder.table.features
    found = kinds(source, [name for name in columns_in(source) if name not in used])
    return [f"the column {one.name!r} {one.why}: take it out of party.toml" for one in found if one.what == "left out"]


def columns_of(folder: Folder) -> Columns:
    """The party's own columns."""
    table = folder.table
    return Columns(table.categorical, table.numeric, table.flagged, table.dates, table.times)


def spelling_of(folder: Folder) -> Spelling:
    """What the label's column calls its classes."""
    return Spelling(folder.terms.positive, folder.terms.class_names)


def _own_columns(folder: Folder) -> Iterator[_Look]:
    columns = columns_of(folder)
    singles = [Columns(numeric=(name,)) for name in columns.numeric]
    singles += [Columns(dates=(name,)) for name in (*columns.dates, *columns.times)]
    dated = folder.config.label.columns
    if folder.terms.tester == folder.config.name and folder.terms.test.date is not None:
        dated = (*dated, folder.terms.test.date)
    singles += [Columns(dates=(name,)) for name in dated]
    singles += [Columns(categorical=(name,)) for name in columns.categorical]
    return (_Look(partial(_read, one)) for one in singles)


def _read(column: Columns, block: pl.DataFrame, rows: NDArray[np.int64]) -> None:
    numbers(with_dates(block, column, rows), column, rows)
    for name in column.categorical:
        spelled(block[name])


def _units(unit: str) -> _Look:
    def look(block: pl.DataFrame, rows: NDArray[np.int64]) -> None:
        empty = (block[unit].cast(pl.String).fill_null("") == "").to_numpy()
        if empty.any():
            where = row_named(int(empty.argmax()), rows)
            raise DataError(f"unit = {unit!r}: {where} has none: fill it in, or leave the row out")

    return _Look(look)


def _labels(folder: Folder) -> _Look:
    column, spelling = str(folder.table.label), spelling_of(folder)
    kind = _split_labels(folder) if isinstance(folder.terms, Contract) else _exchanged_labels(folder)
    words: dict[str, int] = {}  # and the first row of each

    def look(block: pl.DataFrame, rows: NDArray[np.int64]) -> None:
        kind.look(block, rows)
        if spelling.positive is not None and len(words) < _MOST:
            first = pl.DataFrame({"word": spelling.words(block[column]), "row": rows}).drop_nulls()
            for word, row in first.unique("word", keep="first", maintain_order=True).rows():
                words.setdefault(word, row)

    def end() -> None:
        if spelling.positive is not None:
            _check_words(column, spelling.positive, words)
        kind.end()

    return _Look(look, end)


def _check_words(column: str, positive: str, words: Mapping[str, int]) -> None:
    """Where one of two classes is named, the column has it, and one other value: a third would count as the other."""
    shown = ", ".join(f"{word!r} (row {row}, counted from 0)" for word, row in [*words.items()][:_MOST])
    if words and positive not in words:
        raise LabelsError(
            f"the contract says positive = {positive!r}, and no row has that in the column {column!r}, which has "
            f"{shown}: agree on one of these"
        )
    if len(words) > 2:
        raise LabelsError(
            f"the contract says positive = {positive!r}, and beside it the column {column!r} has more than one value, "
            f"{shown}: correct them, leave them empty, or name all classes in class_names"
        )


def _split_labels(folder: Folder) -> _Look:
    column, loss, spelling = str(folder.table.label), folder.contract.loss, spelling_of(folder)
    seen: set[float] = set()

    def look(block: pl.DataFrame, rows: NDArray[np.int64]) -> None:
        bad = wrong_labels(block, column, loss, spelling)
        if len(bad):
            raise labels_error(block[column], loss, int(bad[0]), len(bad), rows, spelling)
        values, _ = spelling.read(block[column])
        seen.update(np.unique(values[~np.isnan(values)]).tolist())

    def end() -> None:
        if not seen:
            raise LabelsError(f"no row has a label in the column {column!r}: name another")
        if len(seen) == 1:
            raise LabelsError(
                f"all labels are {next(iter(seen)):g} in the column {column!r}: there is nothing to learn; name another"
            )
        protect = folder.config.protect.gradient
        if max(seen) > 1 and ((protect is not None and protect.name != "none") or folder.config.limit is not None):
            raise LabelsError(
                f"the column {column!r} has {max(seen) + 1:g} classes, and protections and limits of labels are for "
                'two: write gradient = { name = "none" } and no limit in party.toml, or name another column'
            )

    return _Look(look, end)


def _exchanged_labels(folder: Folder) -> _Look:
    column = str(folder.table.label)
    labels = Labels(column, folder.one_shot.exchange, spelling_of(folder))
    return _Look(lambda block, rows: labels.add(block[column], rows), labels.check)


def names_of(source: Source, columns: Sequence[str], own: Ids) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The hashes of what some columns call each row that can be aligned, with the rows' numbers; they are read once.

    Such a row without a name, or with that of another one, is a `DataError`.
    """
    if (known := own.names.get(tuple(columns))) is not None:
        return known
    usable = np.zeros(own.report.total, np.bool_)
    usable[own.rows] = True
    reading, seen, at_rows = Reading(source, columns), bytearray(), bytearray()
    for some, at in reading.blocks():
        kept = usable[at]
        seen += np.frombuffer(some, np.uint8).reshape(len(at), -1)[kept].tobytes()
        at_rows += at[kept].tobytes()
    hashes = np.frombuffer(seen, np.uint8).reshape(-1, 32)
    rows = np.frombuffer(at_rows, np.int64)
    usable[rows] = False
    if usable.any():
        row = int(usable.argmax())
        raise DataError(_known_by(columns, f"row {row} of {source} has none: fill it in, or leave the row out"))
    _, repeated, example = distinct(hashes)
    if example is not None:
        both = " and ".join(str(rows[place]) for place in example)
        wrong = f"rows {both} of {source} have the same, and {repeated} names are in several rows"
        raise DataError(_known_by(columns, wrong))
    own.names[tuple(columns)] = hashes, rows
    return hashes, rows


def _known_by(columns: Sequence[str], wrong: str) -> str:
    return (
        f"by coin_id = {list(columns)} a row is known for good, and {wrong}; or write other columns for coin_id in "
        "party.toml"
    )
