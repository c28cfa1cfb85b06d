"""What was done to messages, in one line."""

import pytest

from tacit.contracts import Event
from tacit.split.protect.facts import spelled
from tacit.split.protect.gradient import protection


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Event("none"), "none"),
        (Event("iso", {"t": 16.0}), "iso(t=16)"),
        (Event("marvell", {"knob": "scale", "strength": 4.0, "sum_kl": 0.25, "warmup": 2}), "marvell(scale=4)"),
        (Event("gaussian", {"std": None, "snr": 1.25, "clip": None}), "gaussian(snr=1.25)"),
        (Event("chain", parts=(Event("clip", {"norm": 0.1}), Event("iso", {"t": 2.0}))), "clip(norm=0.1) + iso(t=2)"),
    ],
)  # fmt: skip
def test_what_was_done_in_one_line(event, said):
    assert spelled(event) == said


def test_the_event_of_a_protection_can_be_spelled():
    assert spelled(protection("matched", leak_auc=0.55, visits=3).event) == "matched(leak_auc=0.55, visits=3)"
