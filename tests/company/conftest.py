"""Two small companies whose folders are ready to align."""

import polars as pl
import pytest

from benchmarks._companies import two_companies
from tests.torture.world import free_port


@pytest.fixture(name="companies")
def _companies(tmp_path):
    return small_companies(tmp_path)


def small_companies(tmp_path):
    """The airline, which has the labels, and the airport."""
    tables = (
        pl.DataFrame({"id": list(ids), "y": [i % 2 for i in ids], "x": [i / 10 for i in ids]})
        for ids in (range(0, 60), range(59, -11, -1))
    )
    return two_companies(tmp_path, tables, port=free_port())  # none that the system gives to connections meanwhile
