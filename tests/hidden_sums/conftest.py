"""A pair of sides for each test; without libsecp256k1 there is nothing to test."""

import pytest

from tests.hidden_sums.sides import Pair

pytest.importorskip("coincurve", reason="libsecp256k1 comes with the extra [sums]")


@pytest.fixture(name="pair")
def _pair(tmp_path):
    return Pair(tmp_path).meet()
