"""Tables that change, in real processes: some of all cases, in which each two of their kinds meet."""

from itertools import combinations, product

import pytest

from tests.torture.changed_tables import ACTIONS, CHANGES, SIDES, WAYS, World, look, pairs
from tests.torture.processes import Processes


@pytest.fixture(scope="module", name="world")
def _world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    with Processes(folder / "log") as processes:
        yield World(processes, folder)


def test_each_two_kinds_meet():
    kinds = (tuple(CHANGES), SIDES, WAYS, ACTIONS)
    cases = list(pairs())
    for (one, first), (other, second) in combinations(enumerate(kinds), 2):
        met = {(case[one], case[other]) for case in cases}
        assert met == set(product(first, second)), (one, other)


@pytest.mark.parametrize("case", list(pairs()), ids=" ".join)
def test_a_row_is_known_by_its_id(world, case):
    look(world, *case)
