"""What is written down on disk: whatever kills lie between, it is what an uninterrupted run writes down."""

import os
import stat
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.align.batches import batches
from tacit.errors import StorageError, UsageError
from tacit.split import record
from tacit.split.record import RecordedRun, Recorder

ROWS, BATCH, CUT = 13, 4, (2, 3)
STEPS = [rows for epoch in range(4) for rows in batches(ROWS, BATCH, epoch=epoch, seed=5)]


class Killed(BaseException):
    """Nothing in the library may catch it."""


def message(step, *, shared=False):
    """What is recorded of a step: every number tells of its row and step."""
    rows = STEPS[step]
    mark = (100.0 * step + rows)[:, None, None].expand(-1, *CUT).contiguous()
    gradient = mark + 0.2
    own = {} if shared else {"own_embedding": mark + 0.1}
    return {
        "rows": rows, "embedding": mark, "gradient": gradient,
        "clean": gradient if shared else (mark + 0.3).half(), **own,
    }  # fmt: skip


def written(folder, steps, *, last=3, follow=5, every=4, shared=False):
    """A run without any kill, its checkpoints after every so many steps."""
    run = RecordedRun(folder, last=last, follow=follow)
    run.resume(0, 0)
    for step in range(steps):
        run.write(step=step, **message(step, shared=shared))
        if (step + 1) % every == 0:
            run.keep(step + 1)
    return run


def same(one, other):
    """Two transcripts are the same, bit for bit, names and dtypes included."""
    assert torch.equal(one.view.rows, other.view.rows)
    for name in ("gradient", "embedding", "own_embedding"):
        assert torch.equal(getattr(one.view, name), getattr(other.view, name)), name
    assert (one.view.before is None) == (other.view.before is None)
    assert one.clean.dtype == other.clean.dtype
    assert torch.equal(one.clean, other.clean)


def same_as_in_memory(run, steps, *, last=3, follow=5, shared=False):
    plain = Recorder(last=last, follow=follow)
    for step in range(steps):
        plain.write(**message(step, shared=shared))
    same(run.batches(), plain.batches())
    same(run.visits(), plain.visits())


@pytest.mark.parametrize("shared", [False, True], ids=["all-tensors", "shared-tensors"])
def test_it_holds_what_a_recorder_in_memory_holds_and_so_does_whoever_opens_it(tmp_path, shared):
    run = written(tmp_path / "t", len(STEPS), shared=shared)
    same_as_in_memory(run, len(STEPS), shared=shared)
    run.keep(len(STEPS))
    found = RecordedRun.open(tmp_path / "t")
    same_as_in_memory(found, len(STEPS), shared=shared)
    assert (found.steps, found.follow, found.unrecorded, found.recorded) == (len(STEPS), 5, 0, True)


def test_a_reader_sees_the_run_as_it_was_at_the_last_checkpoint(tmp_path):
    run = written(tmp_path, 6, every=4)
    same_as_in_memory(RecordedRun.open(tmp_path), 4)
    same_as_in_memory(run, 6)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_run_that_is_killed_anywhere_writes_down_what_an_uninterrupted_one_does(tmp_path_factory, data):
    """Kills between any two acts, also within `keep`; one goes on from the newest checkpoint or from the one before."""
    folder = tmp_path_factory.mktemp("run") / "transcript"
    last, follow = data.draw(st.integers(1, 5)), data.draw(st.integers(1, ROWS))
    checkpoints = [0]
    for _ in range(data.draw(st.integers(0, 5))):
        run, first = started(folder, checkpoints, last, follow, old=data.draw(st.booleans()))
        until = data.draw(st.integers(first, len(STEPS)))
        every = data.draw(st.integers(1, 5))
        end = data.draw(st.sampled_from(["between", "torn visits", "before the last batches", "before the checkpoint"]))
        for step in range(first, until):
            run.write(step=step, **message(step))
            if (step + 1) % every == 0:
                run.keep(step + 1)
                checkpoints = [*[each for each in checkpoints if each <= step][-1:], step + 1]
        if end != "between":
            killed_within_keep(run, until + 1, end)
    run, first = started(folder, checkpoints, last, follow)
    assert not run.damaged
    for step in range(first, len(STEPS)):
        run.write(step=step, **message(step))
    same_as_in_memory(run, len(STEPS), last=last, follow=follow)
    run.keep(len(STEPS))
    same_as_in_memory(RecordedRun.open(folder), len(STEPS), last=last, follow=follow)
    assert run.unrecorded == 0


def started(folder, checkpoints, last, follow, old=False):
    """A process that goes on from a checkpoint; where the newest is damaged, from the one before."""
    if old and len(checkpoints) > 1:
        checkpoints.pop()
    run = RecordedRun(folder, last=last, follow=follow)
    run.resume(checkpoints[-1], checkpoints[-1])
    return run, checkpoints[-1]


def killed_within_keep(run, turn, end):
    with pytest.MonkeyPatch.context() as patch:

        def write_frame(fd, path, frame, offset):
            if end == "torn visits" and path.name == "visits":
                os.pwrite(fd, b"TACITREC\x05\0\0", offset)
                raise Killed
            if end == "before the last batches" and path.name != "visits":
                raise Killed
            return original(fd, path, frame, offset)

        original = record.write_frame
        patch.setattr(record, "write_frame", write_frame)
        try:
            run.keep(turn)
        except Killed:
            assert end != "before the checkpoint"


def test_no_more_than_the_last_batches_and_the_visits_since_the_last_checkpoint_are_in_memory(tmp_path):
    run = written(tmp_path, 8, every=4)
    assert len(run._last) == 3
    assert run._followed == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["last-000000000004", "last-000000000008", "visits"]


def test_three_files_of_last_batches_are_kept_and_the_oldest_one_is_written_over(tmp_path):
    run = written(tmp_path, 4, every=1)
    oldest = (tmp_path / "last-000000000002").stat().st_ino
    run.write(step=4, **message(4))
    run.keep(5)
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["last-000000000003", "last-000000000004", "last-000000000005", "visits"]
    assert (tmp_path / "last-000000000005").stat().st_ino == oldest


def test_only_the_owner_may_read_it(tmp_path):
    written(tmp_path / "transcript", 8)
    assert stat.S_IMODE((tmp_path / "transcript").stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "transcript").iterdir()} == {0o600}


@pytest.mark.parametrize("name", ["visits", "last-000000000008"])
@pytest.mark.parametrize("how", ["one bit", "cut short", "emptied head"])
def test_damage_is_an_error_that_names_the_file_and_a_training_goes_on_without(tmp_path, name, how):
    written(tmp_path, 8)
    path = tmp_path / name
    raw = bytearray(path.read_bytes())
    if how == "one bit":
        raw[-40] ^= 4
    elif how == "cut short":
        del raw[-40:]
    else:
        raw[:8] = bytes(8)
    path.write_bytes(raw)
    with pytest.raises(StorageError, match=name):
        RecordedRun.open(tmp_path).visits()
    run = RecordedRun(tmp_path, last=3, follow=5)
    run.resume(8, 8)
    assert list(run.damaged) == [path]
    for step in range(8, len(STEPS)):
        run.write(step=step, **message(step))
    run.keep(len(STEPS))
    lost = 0 if name != "visits" else 8 if how == "emptied head" else 4
    assert run.unrecorded == RecordedRun.open(tmp_path).unrecorded == lost


def test_steps_that_nobody_recorded_are_counted(tmp_path):
    written(tmp_path, 4)
    run = RecordedRun(tmp_path, last=3, follow=5)
    run.resume(9, 9)  # it was trained without a recorder up to there
    run.write(step=9, **message(9))
    run.keep(10)
    assert run.unrecorded == RecordedRun.open(tmp_path).unrecorded == 5
    assert run.batches().view.rows.tolist() == [STEPS[9].tolist()]


def test_a_reader_beside_a_run_that_writes_always_sees_something_whole(tmp_path):
    """Every transcript that a reader gets is that of some checkpoint of the run."""
    run = written(tmp_path, 1, every=1)
    failed = []
    done = threading.Event()

    def read():
        while not done.is_set():
            found = RecordedRun.open(tmp_path)
            try:
                same_as_in_memory(found, found.steps)
            except AssertionError as error:
                failed.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(1, len(STEPS)):
        run.write(step=step, **message(step))
        run.keep(step + 1)
    done.set()
    reader.join(20)
    assert not reader.is_alive()
    assert not failed


def test_wrong_use_says_what_to_do(tmp_path):
    run = RecordedRun(tmp_path / "t", last=3)
    with pytest.raises(UsageError, match=r"call resume\(turn, step\)"):
        run.write(step=0, **message(0))
    with pytest.raises(UsageError, match="nothing is recorded there"):
        RecordedRun.open(tmp_path / "t")
    run.resume(0, 0)
    run.write(step=0, **message(0))
    with pytest.raises(UsageError, match="step 0 came where step 1 is next"):
        run.write(step=0, **message(0))
    run.keep(1)
    with pytest.raises(UsageError, match="for reading"):
        RecordedRun.open(tmp_path / "t").keep(1)
    with pytest.raises(UsageError, match="no example was followed"):
        run.visits()


def test_a_file_that_is_written_over_while_it_is_read_is_not_believed(tmp_path, monkeypatch):
    """A slow reader opens the newest file, and the run comes round to it again before it was read."""
    run = written(tmp_path, 1, every=1)
    real = record._read_ring

    def slow(path):
        monkeypatch.setattr(record, "_read_ring", real)
        found = real(path)
        for step in range(1, 5):
            run.write(step=step, **message(step))
            run.keep(step + 1)
        assert not path.exists()
        return found

    monkeypatch.setattr(record, "_read_ring", slow)
    found = RecordedRun.open(tmp_path)
    assert found.steps == 5
    same_as_in_memory(found, 5)
