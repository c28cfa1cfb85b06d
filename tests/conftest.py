"""What all tests share: threads, seeds, a process of one's own.

One thread, unless TACIT_TEST_THREADS says otherwise: small tensors run faster on one than on threads that wait for each
other. TACIT_TEST_SEED moves every seed that tests and our code use in this process. A test that holds at one seed alone
has passed by luck.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

torch.set_num_threads(int(os.environ.get("TACIT_TEST_THREADS", "1")))
_moved = 1_000_003 * int(os.environ.get("TACIT_TEST_SEED", "0"))
hypothesis.settings.register_profile(  # the same examples each time, however long a busy machine takes over one
    "same_every_time",
    derandomize=not _moved,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("same_every_time")


_OURS = tuple(str(Path(__file__).parents[1] / part) + os.sep for part in ("tests", "src", "benchmarks", "papers"))


def _elsewhere(seed):
    """A seed moved, where tests or our code ask for it by a number; what others draw stays as it is."""
    ours = sys._getframe(2).f_code.co_filename.startswith(_OURS)
    return (seed + _moved) % 2**64 if ours and isinstance(seed, int) else seed


class _Generator(torch.Generator):
    def manual_seed(self, seed):
        return super().manual_seed(_elsewhere(seed))


class _Random(random.Random):
    def __init__(self, seed=None):
        super().__init__(_elsewhere(seed))


def _moving(function):
    return lambda seed=None, *rest: function(_elsewhere(seed), *rest)


if _moved:
    torch.Generator, random.Random = _Generator, _Random
    torch.manual_seed, random.seed = _moving(torch.manual_seed), _moving(random.seed)
    np.random.default_rng = _moving(np.random.default_rng)
    hypothesis.core.global_force_seed = _moved


# What `make test` leaves to others: whole programs, processes that are killed, a browser, the pages of the docs.
# `.ci/run` has them on every change, `make test-all` with the long ones.
_SLOW = (
    "align/test_cache.py::test_memory_does_not_grow_with_the_rows",
    "align/test_cache.py::test_stopped_half_way_and_begun_again",
    "align/test_cluster.py",
    "company/gate/test_killed.py",
    "company/gate/test_run_history.py",
    "company/test_align_killed.py",
    "company/test_align_query.py::test_memory_does_not_grow_with_the_rows",
    "company/test_rows_by_id.py::test_ids_are_read_and_hashed_once_a_command[split]",
    "company/test_step.py",
    "company/test_two_worlds.py::test_a",
    "company/test_two_worlds.py::test_in_many_worlds",
    *(
        f"company/test_two_worlds.py::test_whatever_the_rows_are_the_partner_hears_the_same[{name}"
        for name in (
            "counted by persons",
            "a rare class",
            "three classes",
            "numbers",
            "no label sent",
            "split under",
        )
    ),
    "company/test_two_companies.py",
    "split/machine/test_state_machine.py::test_a",  # that the machine would notice
    "docs/test_blocks.py",
    "docs/test_site.py",
    "lab/test_demo.py",
    "lab/test_delays.py::test_two_processes_learn_how_late_flights_come",
    "lab/data/test_streaming.py::test_memory_does_not_grow_with_the_rows",
    "lab/test_sweep.py::test_a_wave_trains_where_there_is_neither_polars_nor_ray",
    "lab/test_sweep_interrupted.py",
    "exchange/test_label_bound_attacked.py",
    "exchange/test_companies.py::test_a_network_learns_without_labels_from_all_rows_that_its_owner_has",
    "exchange/test_companies.py::test_another_run_and_another_partner_get_the_same_bits",
    "exchange/test_companies.py::test_both_bring_models_of_their_own",
    "exchange/test_companies.py::test_labels_are_reissued_for_all_rows_at_the_price_of_all",
    "exchange/test_hostile.py::test_a_book_of_embeddings_that_goes_while_a_release_is_attacked_keeps_it_at_home",
    "exchange/test_features_attacked.py",
    "exchange/test_companies.py::test_another_limit_and_withheld_columns_go_on_in_the_same_run",
    "exchange/test_companies.py::test_rows_of_one_person_count_together",
    "exchange/test_companies.py::test_three_classes",
    "exchange/test_companies.py::test_what_left_while_a_release_was_attacked_is_attacked_with_it",
    "exchange/test_hostile.py::test_the_label_partys_bytes_are_a_function_of_the_flips",
    "exchange/test_learn.py::test_a_network_tells_late_flights_about_as_well_as_trees",
    "papers/test_attacks.py",
    "papers/test_command.py",
    "papers/test_dependence.py",
    "papers/test_embedding.py",
    "papers/test_figures.py",
    "papers/test_making.py",
    "papers/test_mirror.py",
    "papers/test_precision_recall.py",
    "split/protect/embedding/test_against_a_decoder.py",
    "split/protect/test_check.py::test_each_fault_is_refused_for_its_own_reason",
    "split/protect/test_fused.py",
    "split/protect/test_solver.py::test_a_million_extreme_problems_are_solved_to_their_optimum",
    "serve/test_behind_nginx.py",
    "serve/test_exchange_mistakes.py::test_a_mistake_after_the_training",
    "serve/test_predict.py",
    "serve/test_predict_killed.py",
    "serve/test_predict_split.py",
    "serve/test_predict_three.py",
    "serve/test_rows.py",
    "serve/test_serve.py",
    "serve/test_serve_attacked.py",
    "serve/test_serve_hostile.py",
    "serve/test_serve_http.py::test_the_command_with_a_token",
    "serve/test_serve_versions.py",
    "test_examples.py",
    "torture/test_changed_tables.py::test_a_row_is_known_by_its_id",
    "torture/",
    "report/test_browser.py",
    "report/test_keyboard.py",
    "report/web/browser/",
)
_LONG = (
    "company/test_memory.py::test_memory_grows_neither_with_rows_nor_with_steps",
    "split/machine/test_state_machine.py::test_a_handshake_that_does_not_look_at_the_journals_is_noticed",
    "split/machine/test_state_machine.py::test_a_tally_that_lets_an_older_copy_go_on_is_noticed",
    "split/machine/test_state_machine.py::test_whatever_happens_there_is_one_answer_and_the_run_ends_as_if_nothing_had[three]",
    "docs/test_blocks.py::test_a_page_can_be_followed[howto-choose-a-strength.md]",
    "docs/test_blocks.py::test_a_page_can_be_followed[ref-papers.md]",
    "docs/test_blocks.py::test_a_page_can_be_followed[howto-resume-after-a-disaster.md]",
    "docs/test_blocks.py::test_a_page_can_be_followed[howto-run-by-day.md]",
    "docs/test_blocks.py::test_a_page_can_be_followed[tutorial-audit-another-system.md]",
    "docs/test_blocks.py::test_a_page_can_be_followed[tutorial-bring-your-own-model.md]",
    "docs/test_blocks.py::test_a_page_can_be_followed[tutorial-one-shot.md]",
    "docs/test_blocks.py::test_a_page_can_be_followed[tutorial-two-companies.md]",
    "lab/test_sweep_cluster.py::test_two_workers_find_what_one_process_finds",
    "exchange/test_label_bound_attacked.py::test_two_companies_and_two_runs",
    "serve/test_predict_memory.py",
    "test_examples.py::test_the_example_trains_and_says_what_leaked[three_parties]",
    "torture/test_torture.py::test_short_form",
)


def pytest_collection_modifyitems(items):
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        if name.startswith(_LONG):
            item.add_marker(pytest.mark.long)
        if name.startswith((*_SLOW, *_LONG)):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(name="seeds_stay")
def _seeds_stay(monkeypatch):
    """TACIT_TEST_SEED moves nothing here: for what was written down at one seed or another process finds."""
    monkeypatch.setitem(globals(), "_moved", 0)


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory):
    """What left in runs is counted in a folder of the tests, not in that of whoever runs them."""
    os.environ["TACIT_STATE"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(name="seeded")
def _seeded():
    """A torch generator for a seed."""
    return lambda seed: torch.Generator().manual_seed(seed)


_PEAK = """
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
"""


@pytest.fixture(name="alone")
def _alone():
    """What a program prints that runs in a process of its own, where `peak()` is the most memory it has had, in bytes.

    Not ru_maxrss: that of a new process starts with what the process had that started it.
    """

    def run(code, *arguments):
        command = [sys.executable, "-c", _PEAK + code, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module", name="databases")
def _databases(tmp_path_factory):
    from tests.serve import postgres

    with postgres.databases(tmp_path_factory.mktemp("sqlite")) as found:
        yield found


@pytest.fixture(params=["sqlite", "postgresql"], name="database")
def _database(request, databases, monkeypatch):
    """A database whose connection string is in the variable TACIT_TEST_ROWS."""
    import sqlalchemy as sql

    if request.param not in databases:
        pytest.skip("no PostgreSQL is installed here: apt-get install postgresql")
    monkeypatch.setenv("TACIT_TEST_ROWS", databases[request.param])
    engine = sql.create_engine(databases[request.param])
    yield engine
    engine.dispose()


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    """A real Ray cluster of two workers, on this machine."""
    ray = pytest.importorskip("ray", reason="many machines need the extra `cluster`")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                 object_store_memory=100 * 2**20)  # fmt: skip
        yield ray
        ray.shutdown()
