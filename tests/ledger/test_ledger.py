"""The ledger: it equals a count by hand, whatever is repeated, interrupted or in several runs."""

import multiprocessing
import os
import stat
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.align.batches import digest
from tacit.contracts import Event
from tacit.errors import StorageError, UsageError
from tacit.ledger.keys import keys_of
from tacit.ledger.ledger import Checked, Ledger
from tacit.ledger.run import Run
from tacit.ledger.summary import auc_of


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_plan_and_the_counts_are_those_of_the_training(made, data):
    count = data.draw(st.integers(4, 1400))
    size = data.draw(st.integers(1, max(1, count // 2)))
    run = Run(
        name="r", contract="c", alignment="a", role=data.draw(st.sampled_from(["label", "features"])), count=count,
        batch_size=size, epochs=data.draw(st.integers(1, 4)), seed=data.draw(st.integers(0, 2**64)),
        test_share=data.draw(st.sampled_from([0.0, 0.2, 0.45])), test_rows=data.draw(st.sampled_from([7, 51_200])),
    )  # fmt: skip
    plan = made.plan_of(run)
    turns = data.draw(st.integers(0, plan.turns))
    done = Counter()
    for kind, step, turn, rows in made.tasks(run):
        assert run.turn(kind, step) == turn
        if turn < turns:
            assert step == done[kind]
            done[kind] += 1
        if step < 2:
            assert run.rows(kind, step).tolist() == rows.tolist()
    assert {kind: run.due(kind, turns) for kind in ("train", "evaluate")} == {
        kind: done[kind] for kind in ("train", "evaluate")
    }
    visits = run.visits(done["train"], done["evaluate"])
    assert {row: int(times) for row, times in enumerate(visits) if times} == made.by_hand(run, turns)


@pytest.mark.parametrize("role", ["label", "features"])
def test_a_run_is_counted_as_by_hand(made, where, role):
    run = replace(made.SMALL, role=role)
    with Ledger(where) as ledger:
        made.answer_all(ledger.begin(run, made.keys(run.count)), run)
        found = ledger.summary()
    counted = made.by_hand(run)
    assert found.visits == Counter(counted.values())
    assert (found.examples, found.answers, found.most_visits) == (len(counted), counted.total(), 3)
    assert found.runs == 1
    assert Ledger(where).summary() == found, "what is read from disk is what was in memory"


def test_two_runs_over_overlapping_ids_are_counted_by_id(made, where):
    runs = [
        made.SMALL,
        made.other("s", alignment="next day", count=170, epochs=2, seed=8),
        made.other("t", count=90, batch_size=30),
    ]
    offsets = [0, 120, 150]
    counted = Counter()
    with Ledger(where) as ledger:
        for run, offset in zip(runs, offsets, strict=True):
            made.answer_all(ledger.begin(run, made.keys(run.count, offset)), run)
            counted.update({row + offset: times for row, times in made.by_hand(run).items()})
        found = ledger.summary()
    assert found.visits == Counter(counted.values())
    assert found.most_visits == max(counted.values()) > 3
    assert (found.examples, found.runs) == (len(counted), 3)


def test_the_same_rows_on_another_day_add_up_and_share_a_file_of_keys(made, where):
    with Ledger(where) as ledger:
        for name in ("monday", "tuesday"):
            made.answer_all(ledger.begin(made.other(name), made.keys(made.SMALL.count)), made.SMALL)
        found = ledger.summary()
    assert found.visits == Counter(2 * times for times in made.by_hand(made.SMALL).values())
    assert len(list(where.glob("keys-*"))) == 1


def test_without_ids_every_run_is_apart_and_the_summary_says_so(made, where):
    with Ledger(where) as ledger:
        for name in ("monday", "tuesday"):
            made.answer_all(ledger.begin(made.other(name), None), made.SMALL)
        found = ledger.summary()
    once = Counter(made.by_hand(made.SMALL).values())
    assert found.visits == {times: 2 * examples for times, examples in once.items()}
    assert "2 runs have no ids" in found.notes[-1]
    assert not any(line.known for line in found.each)


# --- replays ---------------------------------------------------------------------------------------------------------


def test_a_replay_changes_nothing(made, where):
    with Ledger(where) as ledger:
        book = ledger.begin(made.SMALL, made.keys(made.SMALL.count))
        made.answer_all(book, made.SMALL, turns=20)
        before = (where / "log").read_bytes()
        made.answer_all(book, made.SMALL, first=7, turns=20, figures={"power": 2.0})
        assert (where / "log").read_bytes() == before
    with Ledger(where) as ledger:
        book = ledger.begin(made.SMALL, made.keys(made.SMALL.count))
        book.resume(12)
        made.answer_all(book, made.SMALL, first=12)
        assert ledger.summary().visits == Counter(made.by_hand(made.SMALL).values())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows": bytes(16)}, "another rows"),
        ({"event": Event("matched", {"leak_auc": 0.7, "visits": 3})}, "another event"),
        ({"event": Event("none")}, "another event"),
        ({"turn": 5}, "not in the plan"),
        ({"step": 99}, "not in the plan"),
        ({"step": 6, "turn": 6}, "older copy"),
    ],
    ids=["rows", "strength", "mechanism", "turn", "step", "gap"],
)
def test_a_second_answer_or_one_out_of_order_is_refused(made, where, changes, said):
    with Ledger(where) as ledger:
        book = ledger.begin(made.SMALL, None)
        made.answer_all(book, made.SMALL, turns=5)
        before = (where / "log").read_bytes()
        right = {
            "kind": "train",
            "step": 4,
            "turn": 4,
            "rows": digest(made.SMALL.rows("train", 4)),
            "event": made.MATCHED,
        }
        with pytest.raises(StorageError, match=said):
            book.answer(**{**right, **changes}, figures=made.FIGURES)
        assert (where / "log").read_bytes() == before


def test_rows_that_are_not_the_plans_are_refused_at_the_first_step_of_an_epoch(made, where):
    with Ledger(where) as ledger:
        book = ledger.begin(made.SMALL, None)
        with pytest.raises(StorageError, match="other rows than the plan"):
            book.answer("train", 0, 0, digest(made.SMALL.rows("train", 1)), made.MATCHED)
        with pytest.raises(StorageError, match="gradient step 0 in turn 0 is not in the plan"):
            book.answer("gradient", 0, 0, digest(made.SMALL.rows("train", 0)), made.MATCHED)


def test_a_ledger_behind_the_checkpoint_is_noticed(made, where):
    for role, needs in (("label", 14), ("features", 12)):
        run = made.other(role, role=role)
        with Ledger(where) as ledger:
            book = ledger.begin(run, None)
            made.answer_all(book, run, turns=12)
            book.resume(12)
            if role == "label":
                assert run.due("train", 12) == 10
                book.resume(needs - 1)  # turns 10 to 13 are an evaluation, where nothing of a row is told
            else:
                with pytest.raises(StorageError, match="after 3 answered evaluate steps, and only 2 are written down"):
                    book.resume(13)
            with pytest.raises(StorageError, match="older copy"):
                book.resume(14)


def test_a_run_goes_on_only_with_its_own_plan_and_keys(made, where):
    with Ledger(where) as ledger:
        made.answer_all(ledger.begin(made.SMALL, made.keys(made.SMALL.count)), made.SMALL, turns=5)
    for run, known, said in (
        (replace(made.SMALL, batch_size=32), made.keys(made.SMALL.count), "another plan"),
        (made.SMALL, made.keys(made.SMALL.count, 1), "other keys"),
        (made.SMALL, None, "other keys"),
    ):
        with Ledger(where) as ledger, pytest.raises(StorageError, match=said):
            ledger.begin(run, known)
    with Ledger(where) as ledger, pytest.raises(UsageError, match="keys for 203"):
        ledger.begin(made.SMALL, made.keys(7))


# --- who may read, write and know ------------------------------------------------------------------------------------


def test_one_process_adds_and_others_read(made, where):
    with Ledger(where) as ledger:
        book = ledger.begin(made.SMALL, None)
        made.answer_all(book, made.SMALL, turns=5)
        reader = Ledger(where)
        assert reader.summary().answers == 5 * 16
        made.answer_all(book, made.SMALL, first=5, turns=9)
        assert reader.summary().answers == 9 * 16, "it reads on from where it was"
        assert reader.summary().head == ledger.summary().head
        with Ledger(where) as second, pytest.raises(StorageError, match="another process"):
            second.begin(made.SMALL, None)
    with Ledger(where) as ledger:
        ledger.begin(made.SMALL, None)


def _write(made, where, ready):
    with Ledger(where) as ledger:
        book = ledger.begin(made.SMALL, None)
        ready.set()
        made.answer_all(book, made.SMALL)


def test_reading_while_another_process_writes(made, where):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    writer = context.Process(target=_write, args=(made, where, ready))
    writer.start()
    assert ready.wait(20)
    reader, seen = Ledger(where), []
    while writer.is_alive():
        seen.append(reader.summary().answers)
        fresh = Ledger(where)
        assert isinstance(fresh.check(), Checked)
        assert fresh.summary().answers >= seen[-1]
    writer.join(20)
    assert writer.exitcode == 0
    assert seen == sorted(seen)
    assert all(answers % 16 == 0 for answers in seen)
    assert reader.summary().answers == made.by_hand(made.SMALL).total()


def test_an_empty_folder_is_an_empty_ledger(where):
    found = Ledger(where).summary()
    assert (found.examples, found.answers, found.runs, found.visits, found.worst_case) == (0, 0, 0, {}, 0.5)
    assert Ledger(where).check() == Checked(0, 0, "", 0)


def test_keys_know_ids_again_and_the_secret_stays(made, where):
    with Ledger(where) as ledger:
        ids = [str(number) for number in range(made.SMALL.count)]
        known = keys_of(ids, ledger.secret)
        assert len(set(known.tolist())) == made.SMALL.count
        assert (keys_of(ids[50:60], ledger.secret) == known[50:60]).all()
        assert not (keys_of(ids, b"another") == known).any()
        ledger.begin(made.SMALL, known)
    assert stat.S_IMODE((where / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE(where.stat().st_mode) == 0o700
    assert stat.S_IMODE((where / "log").stat().st_mode) == 0o600
    secret = (where / "secret").read_bytes()
    for path in where.iterdir():
        assert path.name == "secret" or secret not in path.read_bytes()
    (where / "secret").write_bytes(b"another")
    with Ledger(where) as ledger, pytest.raises(StorageError, match="another secret"):
        ledger.begin(made.SMALL, known)
    os.remove(where / "secret")
    with Ledger(where) as ledger, pytest.raises(StorageError, match="missing"):
        ledger.begin(made.SMALL, known)


def test_the_worst_case_is_the_sum_over_epochs_of_the_worst_step(made, where):
    """A row is visited once in an epoch, by whichever step; a step that does not say has no bound."""
    steps = made.SMALL.steps
    with Ledger(where) as ledger:
        book = ledger.begin(made.SMALL, None)
        said = {kind: {} for kind in ("train", "evaluate")}
        for kind, step, turn, rows in made.tasks(made.SMALL):
            told = 0.01 * (1 + step % 3) * (1 + step // steps)
            said[kind][step // steps] = max(said[kind].get(step // steps, 0.0), told)
            book.answer(kind, step, turn, digest(rows), made.MATCHED, {"row_kl": told})
        assert book.row_kl() == pytest.approx(said["train"])
        assert ledger.summary().worst_case == pytest.approx(auc_of(0.03 + 0.06 + 0.09))
    (declared,) = Ledger(where).runs()
    assert declared.row_kl == pytest.approx({0: 0.03, 1: 0.06, 2: 0.09})
    with Ledger(where.parent / "silent") as ledger:
        book = ledger.begin(made.SMALL, None)
        made.answer_all(book, made.SMALL, turns=3)
        made.answer_all(book, made.SMALL, first=3, turns=4, figures={"power": 1.0})
        found = ledger.summary()
    assert found.worst_case is None
    assert "no bound for a row" in found.notes[0]


# --- size ------------------------------------------------------------------------------------------------------------


def test_a_hundred_million_rows_fit_on_one_disk(made, where):
    figures = {"power": 1.0, "untouched_rows": 0.0, "model_auc_gaussian": 0.6}
    with Ledger(where) as ledger:
        book = ledger.begin(made.SMALL, made.keys(made.SMALL.count))
        made.answer_all(book, made.SMALL, turns=4, figures=figures)
        before = (where / "log").stat().st_size
        made.answer_all(book, made.SMALL, first=4, turns=10, figures=figures)
        each = ((where / "log").stat().st_size - before) / 6
    large = Run(
        name="r", contract="c", alignment="a", role="label", count=100_000_000, batch_size=1024, epochs=15, seed=1
    )
    assert each <= 80
    assert large.planned("train") * each < 130e6
    per_row = next(where.glob("keys-*")).stat().st_size - 128  # what .npy begins with
    assert per_row == 8 * made.SMALL.count
    assert large.planned("train") * each + 8 * large.count < 1e9


def test_visits_of_many_rows_are_counted_fast(where):
    run = Run(name="r", contract="c", alignment="a", role="label", count=1_000_000, batch_size=1024, epochs=15, seed=1)
    steps = run.planned("train") - 500
    visits = run.visits(steps, 0)
    assert int(visits.sum()) == steps * 1024
    assert int(visits.max()) == 15
    rest = np.concatenate([run.rows("train", step).numpy() for step in (run.planned("train") - 501,)])
    assert (visits[rest] >= 14).all()
