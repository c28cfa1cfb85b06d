"""Work on labels, done in a time that they do not set."""

import pytest
import torch

from tacit.split import evenly as module
from tacit.split.evenly import alternating, evenly


class Clock:
    """Time that passes where somebody works or sleeps."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        assert seconds >= 0
        self.now += seconds


@pytest.fixture(name="clock")
def _clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.mark.parametrize(("taken", "passed"), [(0.0, 2.5), (1.0, 2.5), (1.5, 2.5), (1.6, 3.0), (2.0, 3.0), (4.0, 5.0)])
def test_the_time_is_the_rehearsals_whatever_the_work_takes(clock, taken, passed):
    assert evenly(lambda: clock.sleep(1.0), lambda: clock.sleep(taken) or "done") == "done"
    assert clock.now == pytest.approx(100.0 + passed)


def test_an_error_comes_at_the_same_time(clock):
    with pytest.raises(KeyError):
        evenly(lambda: clock.sleep(1.0), lambda: {}["a label"])
    assert clock.now == pytest.approx(102.5)


@pytest.mark.parametrize("labels", [torch.zeros(5), torch.ones(4, dtype=torch.int64), torch.ones(3, dtype=torch.bool)])
def test_other_labels_have_both_classes(labels):
    other = alternating(labels)
    assert (other.dtype, other.shape) == (labels.dtype, labels.shape)
    assert other.tolist() == [place % 2 for place in range(len(labels))]
