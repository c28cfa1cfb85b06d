"""The authors' published points, as a second layer where the axes agree."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import polars as pl

from papers.kinds import of_pictures

__all__ = ["DATA", "points", "published", "strengths"]

DATA = {"criteo": "criteo", "avazu": "avazu", "isic": "isic"}
"""Our name of a data set, and theirs, where the rows are the same: test AUCs can be compared on these alone."""


@cache
def published() -> pl.DataFrame:
    """Every run of the authors: data, protection, knob, strength, test_auc, leak; protections as we name them.

    The strength of iso is given as the ratio r of standard deviations; here it is the paper's t, which is r squared.
    """
    read = pl.read_csv(files("papers").joinpath("paper_tradeoff.csv").read_bytes())
    iso, marvell = pl.col("protection") == "iso", pl.col("protection") == "marvell"
    return read.select(
        "data",
        pl.col("protection").replace("no_noise", "none"),
        pl.when(iso).then(pl.lit("t")).when(marvell).then(pl.lit("scale")).alias("knob"),
        pl.when(iso).then(pl.col("strength") ** 2).otherwise(pl.col("strength")).alias("strength"),
        "test_auc",
        pl.col("norm_leak_auc_cut_q95_folded").alias("leak"),
    )


def strengths(data: str, protection: str) -> tuple[float, ...]:
    """Every strength that the authors ran on the data set, rising: s of marvell, t of iso.

    On the pictures of ISIC there are more of them, and stronger ones. Data that they did not have, made-up data and
    other skin lesions go by the set that they are like, and else by Criteo.

    >>> len(strengths("criteo", "marvell")), len(strengths("criteo", "iso"))
    (24, 22)
    >>> len(strengths("ham10000", "marvell")), len(strengths("ham10000", "iso"))
    (33, 32)
    """
    name = "isic" if of_pictures(data) else DATA.get(data.removeprefix("generated:"), "criteo")
    rows = published().filter((pl.col("data") == name) & (pl.col("protection") == protection))
    return tuple(rows["strength"].sort())


def points(data: str) -> pl.DataFrame:
    """The authors' runs on this data set; none where they did not use it."""
    return published().filter(pl.col("data") == DATA.get(data, ""))
