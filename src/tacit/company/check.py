"""Whether a party's own table can be trained on: asked of all its rows, before anything is aligned or sent.

Which rows are aligned is the partner's choice. If a training were refused over the labels or units of those rows, its
refusal would tell about the very rows that the partner has picked; so whatever can be wrong with them is looked for
here, where the partner has no say, and nothing is refused over them later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align.encoder import COMPANY, Columns, numbers, to_float, values_of
from tacit.align.ids import Ids, Reading, distinct
from tacit.align.sources import Source, blocks, check_columns
from tacit.align.tables import labels_error, wrong_labels
from tacit.company.folder import Folder
from tacit.config import Contract
from tacit.errors import DataError, LabelsError
from tacit.one_shot.target import Labels

Look = Callable[[pl.DataFrame, NDArray[np.int64]], None]
"""Takes rows of the table with their numbers."""


def check_table(folder: Folder, source: Source, own: Ids) -> None:
    """Refuse a party's table where anything in it can't be used as the contract and party.toml say.

    An error names the column, and the first row that is wrong. `own` are the table's ids.
    """
    table = folder.table
    names = list(dict.fromkeys((*table.ids, *table.columns, *table.coin_id)))
    looks: list[Look] = [_own_columns(folder)]
    ended: list[Callable[[], None]] = []
    if table.label is not None:
        look, end = _split_labels(folder) if isinstance(folder.terms, Contract) else _exchanged_labels(folder)
        looks.append(look)
        ended.append(end)
        unit = "row" if isinstance(folder.terms, Contract) else folder.terms.exchange.unit
        if unit != "row":
            names = list(dict.fromkeys((*names, unit)))
            looks.append(lambda block, rows: _check_units(block[unit], rows))
    check_columns(source, names)
    done = 0
    for block in blocks(source, names):
        rows = np.arange(done, done + len(block))
        for look in looks:
            look(block, rows)
        done += len(block)
    if not done:
        raise DataError(f"{source} has no rows: name the table of this party")
    for end in ended:
        end()
    if table.coin_id and table.coin_id != table.ids:
        for _ in names_of(source, table.coin_id, own):
            pass


def columns_of(folder: Folder) -> Columns:
    """The party's own columns."""
    return Columns(folder.table.categorical, folder.table.numeric, folder.table.flagged)


def _own_columns(folder: Folder) -> Look:
    columns = columns_of(folder)

    def look(block: pl.DataFrame, rows: NDArray[np.int64]) -> None:
        numbers(block, columns, rows)
        for name in columns.categorical:
            values_of(block[name], COMPANY)

    return look


def _split_labels(folder: Folder) -> tuple[Look, Callable[[], None]]:
    column, loss = str(folder.table.label), folder.contract.loss
    wrong: list[tuple[int, object]] = []
    seen: set[float] = set()

    def look(block: pl.DataFrame, rows: NDArray[np.int64]) -> None:
        bad = wrong_labels(block, column, loss)
        wrong.extend((int(rows[row]), block[column][int(row)]) for row in bad)
        if not len(bad):
            seen.update(to_float(block[column]).fill_nan(None).drop_nulls().unique().to_list())

    def end() -> None:
        if wrong:
            raise labels_error(column, loss, *wrong[0], len(wrong))
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

    return look, end


def _exchanged_labels(folder: Folder) -> tuple[Look, Callable[[], None]]:
    column = str(folder.table.label)
    labels = Labels(column, folder.one_shot.exchange)
    return lambda block, rows: labels.add(block[column], rows), labels.check


def _check_units(column: pl.Series, rows: NDArray[np.int64]) -> None:
    empty = (column.cast(pl.String).fill_null("") == "").to_numpy()
    if empty.any():
        row = int(rows[int(empty.argmax())])
        raise DataError(f"unit = {column.name!r}: row {row} has none: fill it in, or leave the row out")


def names_of(source: Source, columns: Sequence[str], own: Ids) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """The hashes of what some columns call each row that can be aligned, with the rows' numbers, block by block.

    Such a row without a name, or with that of another one, is a `DataError` at the end.
    """
    usable = np.zeros(own.report.total, np.bool_)
    usable[own.rows] = True
    reading, seen, at_rows = Reading(source, columns), bytearray(), bytearray()
    for some, at in reading.blocks():
        kept = usable[at]
        hashes = np.frombuffer(some, np.uint8).reshape(len(at), -1)[kept]
        seen += hashes[:, :16].tobytes()
        at_rows += at[kept].tobytes()
        yield hashes, at[kept]
    rows = np.frombuffer(at_rows, np.int64)
    usable[rows] = False
    if usable.any():
        row = int(usable.argmax())
        raise DataError(_known_by(columns, f"row {row} of {source} has none: fill it in, or leave the row out"))
    _, repeated, example = distinct(np.frombuffer(seen, np.uint8).reshape(-1, 16))
    if example is not None:
        both = " and ".join(str(rows[place]) for place in example)
        wrong = f"rows {both} of {source} have the same, and {repeated} names are in several rows"
        raise DataError(_known_by(columns, wrong))


def _known_by(columns: Sequence[str], wrong: str) -> str:
    return (
        f"by coin_id = {list(columns)} a row is known for good, and {wrong}; or write other columns for coin_id in "
        "party.toml"
    )
