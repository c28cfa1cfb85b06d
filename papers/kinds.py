"""What a kind of figure is: numbers from results, and a picture of the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from papers.labels import SETTING, labelled
from papers.sheet import Sheet
from tacit.errors import DataError

__all__ = ["Kind", "averaged", "needs", "of_pictures", "plain", "whole"]


@dataclass(frozen=True)
class Kind:
    """Figures that are made alike.

    Attributes:
        numbers: from the results of a recipe and the name of its data set to the table that is drawn, and written
            beside the picture.
        draw: the table as panels of a sheet.
    """

    numbers: Callable[[pl.DataFrame, str], pl.DataFrame]
    draw: Callable[[pl.DataFrame, Sheet], None]


def of_pictures(data: str) -> bool:
    """Whether a data set of that name holds pictures.

    >>> of_pictures("generated:isic"), of_pictures("criteo")
    (True, False)
    """
    return data.removeprefix("generated:") in ("isic", "ham10000", "fashion")


def needs(table: pl.DataFrame, columns: Sequence[str], what: str) -> None:
    """Refuse results that lack what a figure draws."""
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise DataError(
            f"{what} needs {', '.join(missing)}, which the results do not have: leave --from out, so that the figure "
            "trains what it needs"
        )


def plain(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of settings with no option beside their strength: the papers' settings have none."""
    return table.filter(labelled(table)["others"] == "")


def whole(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of whole trainings, with the lowest training loss of any stretch as `least_loss`."""
    least = table.filter(pl.col("part") == "stretch").group_by("replica").agg(pl.col("train_loss").min())
    rows = table.filter(pl.col("part") == "whole")
    joined = rows.join(least.rename({"train_loss": "least_loss"}), on="replica", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("least_loss", "train_loss").alias("least_loss"))


def averaged(table: pl.DataFrame, *others: str) -> pl.DataFrame:
    """The mean over seeds of every number, one row for each setting and each value of the other columns."""
    keys = [*SETTING, *others]
    left = [*keys, "replica", "seed"]
    numbers = [name for name, kind in table.schema.items() if kind.is_numeric() and name not in left]
    mean = [pl.col(name).cast(pl.Float64).mean() for name in numbers]
    return labelled(table.group_by(keys, maintain_order=True).agg(mean))
