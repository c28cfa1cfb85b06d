"""Labels flipped once, an embedding sent once: ten lines with any estimator of scikit-learn.

A shop knows what customers looked at, a bank knows who did not pay. The data is made up here.

    python examples/one_shot.py
    python examples/one_shot.py --rows 2000      # in a few seconds
"""

from __future__ import annotations

import argparse

import numpy as np
import polars as pl
from sklearn.linear_model import LogisticRegression

import tacit


def customers(rows: int) -> pl.DataFrame:
    """Made-up customers of both; about one in six did not pay, more often those who shop at night."""
    draw = np.random.default_rng(1)
    night, basket, income = draw.normal(size=(3, rows))
    city = draw.choice(["north", "south", "west"], rows)
    risk = night - 0.7 * income + 0.5 * (city == "south") + draw.normal(size=rows)
    table = {"night": night, "basket": basket, "city": city, "income": income, "unpaid": (risk > 1.6).astype(int)}
    return pl.DataFrame(table)


def main() -> None:
    """Train, and see what each side would have told."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--rows", type=int, default=12_000)
    table = customers(options.parse_args().rows)

    result = tacit.one_shot(
        features=table.select("night", "basket", "city"),  # the shop's
        own=table.select("income"),  # the bank's, like the labels
        labels=table["unpaid"],
        limit=0.6,  # the leak AUC of a label: a bound
        odds=3.0,  # and no label's odds change by more than this factor
        rare="positive",
        bits=3,  # that the shop sends of a customer: one of eight groups
        learner=LogisticRegression(C=0.01),  # the shop's, on flipped labels
        head=LogisticRegression(),  # the bank's, on true ones
    )
    print(result)


if __name__ == "__main__":
    main()
