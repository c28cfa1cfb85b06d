"""UCI Adult as a data set of the lab: an employer with work and schooling, a tax office with families and incomes.

The files and where to get them: `tacit.lab.adult`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from tacit.errors import UsageError
from tacit.lab import adult
from tacit.lab.data.faults import Faults
from tacit.lab.data.joined import KEY, LABEL, of_table
from tacit.lab.data.rows import Data

__all__ = ["load", "write_generated"]


def load(
    folder: str | Path, *, rows: int | None = None, seed: int = 0, test_share: float = 0.2, bad: str = "raise"
) -> Data:
    """All people of the files, those of `adult.data` and `adult.test` together.

    Args:
        folder: holds one of `tacit.lab.adult.FILES`, or is such a file itself.
        rows: use this many people at most, training and test together, drawn at random; None for all.
        seed: draws the test rows.
        test_share: the chance of a person to be for testing.
        bad: "raise" or "skip" for rows that can't be used.
    """
    faults = Faults(bad)
    table = adult.load(folder, faults)
    return of_table(
        "adult",
        table.with_columns(pl.col("id").alias(KEY), pl.col(adult.LABEL).alias(LABEL)),
        adult.EMPLOYER_INPUTS,
        adult.TAX_OFFICE_INPUTS,
        read=(
            f"{len(table):,} people of UCI Adult were read, from all files together.",
            "The label says who earns more than 50,000 dollars a year; the census weight fnlwgt is left out.",
            "A '?' is a missing value.",
        ),
        faults=faults,
        rows=rows,
        seed=seed,
        test_share=test_share,
    )


def write_generated(folder: str | Path, rows: int, seed: int) -> None:
    """Made-up people in the official format: `adult.data`, and a third of them in `adult.test`.

    Schooling, hours, age, marriage and capital raise the income, as they do in the real files.

    Args:
        folder: where the files go; it is made where there is none.
        rows: people in both files together, at least 3.
        seed: of everything.
    """
    if rows < 3:
        raise UsageError(f"rows is {rows}: both files need people, so choose a number from 3 on")
    draw = np.random.default_rng(seed)
    years, hours, age = draw.integers(1, 17, rows), draw.integers(10, 70, rows), draw.integers(17, 91, rows)
    wed = draw.random(rows) < 0.47
    gain = np.where(draw.random(rows) < 0.08, draw.integers(100, 20_000, rows), 0)
    rich = (
        0.3 * (years - 10) + 0.03 * (hours - 40) + 0.02 * (age - 40) + 2.2 * wed + gain / 4000 - 3.2
        + draw.logistic(size=rows)
    ) > 0  # fmt: skip

    def word(*words: str) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
        return draw.choice(np.array(words), rows)

    columns = (
        age, word("Private", "State-gov", "Self-emp-inc", "?"), draw.integers(10_000, 900_000, rows),
        np.array(["HS-grad", "Some-college", "Bachelors", "Masters"])[np.clip((years - 8) // 2, 0, 3)], years,
        np.where(wed, "Married-civ-spouse", word("Divorced", "Never-married", "Widowed")),
        word("Sales", "Tech-support", "Craft-repair", "Exec-managerial", "?"),
        np.where(wed, word("Husband", "Wife"), word("Not-in-family", "Own-child", "Unmarried")),
        word("White", "Black", "Asian-Pac-Islander"), word("Male", "Female"), gain,
        np.where(draw.random(rows) < 0.05, 1_902, 0), hours, word("United-States", "Mexico", "India", "?"),
        np.where(rich, ">50K", "<=50K"),
    )  # fmt: skip
    lines = [", ".join(map(str, person)) for person in zip(*columns, strict=True)]
    folder, tests = Path(folder), rows // 3
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adult.data").write_text("\n".join(lines[tests:]) + "\n\n")
    (folder / "adult.test").write_text("|1x3 Cross validator\n" + ".\n".join(lines[:tests]) + ".\n\n")
