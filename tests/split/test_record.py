"""What is written down: in bounded memory, in order, and without holes."""

import weakref

import pytest
import torch

from tacit.align.batches import batches
from tacit.errors import UsageError
from tacit.split.record import Recorder

CUT = (2, 3)


def write(recorder, step, rows):
    """One step whose every number tells of its row and step; weak references to what was handed over."""
    rows = torch.as_tensor(rows)
    mark = (100.0 * step + rows)[:, None, None].expand(-1, *CUT)
    made = {"embedding": mark + 0.1, "gradient": mark + 0.2, "clean": mark + 0.3}
    recorder.write(rows=rows, **made)
    return [weakref.ref(tensor) for tensor in (rows, *made.values())]


def alive(references):
    return sum(reference() is not None for reference in references)


def assert_marks(transcript, steps):
    """Every recorded number must be the one that belongs to its row and its step.  steps: (steps, batch)"""
    view = transcript.view
    mark = 100.0 * torch.as_tensor(steps) + view.rows
    torch.testing.assert_close(view.gradient, (mark + 0.2)[..., None].expand(*mark.shape, 6))
    torch.testing.assert_close(transcript.clean, (mark + 0.3)[..., None].expand(*mark.shape, 6))
    torch.testing.assert_close(view.embedding, (mark + 0.1)[..., None].expand(*mark.shape, 6))


def test_the_last_batches_are_kept_oldest_first_and_older_ones_are_freed():
    recorder = Recorder(last=3)
    references = [write(recorder, step, [step, step + 1, 7]) for step in range(10)]
    assert [alive(each) > 0 for each in references] == [False] * 7 + [True] * 3
    transcript = recorder.batches()
    assert transcript.view.role == "features"
    assert transcript.view.rows.tolist() == [[7, 8, 7], [8, 9, 7], [9, 10, 7]]
    assert_marks(transcript, [[7], [8], [9]])


def test_fewer_batches_than_asked_for():
    recorder = Recorder(last=5)
    write(recorder, 0, [4, 2])
    assert recorder.batches().view.gradient.shape == (1, 2, 6)


def test_visits_keep_the_followed_examples_alone():
    recorder = Recorder(last=0, follow=2)
    references = [write(recorder, step, rows) for step, rows in enumerate([[5, 1, 4], [0, 9, 3], [1, 0, 8], [6, 7, 5]])]
    assert sum(map(alive, references)) == 0  # what is kept is a copy of a few rows, not a piece of a whole batch
    transcript = recorder.visits()
    assert transcript.view.rows.tolist() == [[0, 1], [0, 1]]
    assert_marks(transcript, [[1, 0], [2, 2]])


def test_batches_without_a_followed_example_take_no_memory():
    recorder = Recorder(last=0, follow=1)
    write(recorder, 0, [0, 1])
    for step in range(1, 50):
        write(recorder, step, [2, 3])
    assert len(recorder._followed) == 1
    assert recorder.visits().view.rows.tolist() == [[0]]


def test_visits_in_the_order_of_time_without_those_who_sat_out():
    """17 examples in batches of 5: two sit out at each epoch. Judged against a plain loop over the same batches."""
    recorder = Recorder(last=2, follow=9)
    seen = {}
    for epoch in range(4):
        for place, rows in enumerate(batches(17, 5, epoch=epoch, seed=3)):
            write(recorder, 10 * epoch + place, rows)
            for row in rows.tolist():
                seen.setdefault(row, []).append(10 * epoch + place)
    whole = sorted(row for row, steps in seen.items() if row < 9 and len(steps) == 4)
    assert 0 < len(whole) < 9, "somebody must sit out, or this shows nothing"
    transcript = recorder.visits()
    assert transcript.view.rows.tolist() == [whole] * 4
    assert_marks(transcript, torch.tensor([seen[row] for row in whole]).T)
    assert recorder.batches().view.gradient.shape == (2, 5, 6)


@pytest.mark.parametrize("options", [{"last": 0}, {"last": -1}, {"last": 2, "follow": -1}])
def test_a_recorder_that_would_keep_nothing_is_refused(options):
    with pytest.raises(UsageError, match=r"Recorder\(last=.*set one of them above 0"):
        Recorder(**options)


@pytest.mark.parametrize(("name", "value"), [("last", 2.5), ("last", "3"), ("last", True), ("follow", 1.5)])
def test_counts_of_a_recorder_are_whole_numbers(name, value):
    with pytest.raises(UsageError, match=rf"Recorder\({name}={value!r}\): {name} is a count, pass a whole number"):
        Recorder(**{name: value})


def test_reading_what_was_not_recorded():
    with pytest.raises(UsageError, match=r"no batch was recorded: .*last= above 0"):
        Recorder(last=1).batches()
    recorder = Recorder(last=1, follow=3)
    write(recorder, 0, [3, 4])
    with pytest.raises(UsageError, match=r"no example was followed: .*follow= above 0"):
        recorder.visits()
    recorder = Recorder(last=0, follow=3)
    write(recorder, 0, [1, 2])
    with pytest.raises(UsageError, match=r"no batch was recorded"):
        recorder.batches()
