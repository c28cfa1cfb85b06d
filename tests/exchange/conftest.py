"""A made-up table whose labels hang on a category and two numbers, coins that flip them, and companies that train."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch

from tacit.align.encoder import Inputs

from .companies import Companies, table


@pytest.fixture(name="made_up", scope="session")
def _made_up():
    draw = np.random.default_rng(3)
    rows = 3000
    codes, numbers = draw.integers(0, 6, (rows, 2)), draw.normal(size=(rows, 4)).astype(np.float32)
    score = 1.5 * numbers[:, 0] * (codes[:, 0] > 2) + 1.5 * (codes[:, 1] % 2) + numbers[:, 1]
    labels = (score + draw.normal(size=rows) > 1.0).astype(np.int64)
    return SimpleNamespace(
        inputs=Inputs(torch.from_numpy(codes), torch.from_numpy(numbers), (6, 6)),
        labels=labels,
        three=np.digitize(score, [0.0, 1.5]),
        score=score,
        sent=np.where(draw.random(rows) < 0.8, labels, 1 - labels).astype(np.uint8),
        coin=SimpleNamespace(classes=2, a=0.8, b=0.2),
        three_classes=SimpleNamespace(classes=3, p=1.0, q=0.0),
        numbers=SimpleNamespace(value_of=lambda sent: sent / 10.0),
        train=2400,
    )


@pytest.fixture(name="companies")
def _companies(tmp_path):
    return Companies(tmp_path, table())


@pytest.fixture(name="reported", scope="session")
def _reported(tmp_path_factory):
    """Two companies that have trained, each with its report."""
    rows, apart = table(), np.random.default_rng(9).normal(size=1500)  # no column alone is what is learnt
    rows = rows.with_columns(wind=pl.col("wind") + apart, rain=pl.col("wind") - apart)
    companies = Companies(tmp_path_factory.mktemp("reported"), rows)
    columns = 'categorical = ["port"], numeric = ["wind", "rain"]'
    companies.set("airport", limits="limit = 0.99", columns=columns)
    companies.agree(bits=1)
    companies.align()
    outcomes = companies.train()
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    return companies
