"""A ledger, looked at while a run goes on."""

import dataclasses

from tacit.ledger.ledger import Ledger
from tacit.views import ledger
from tacit.views.ledger import LedgerGlance


def test_the_summary_is_that_of_the_ledger_and_a_minute_old_at_most(full):
    clock = [0.0]
    glance = LedgerGlance(full, now=lambda: clock[0])
    told = glance.summary()
    expected = dataclasses.asdict(Ledger(full).summary())
    del expected["each"]
    assert told == expected
    clock[0] = 59.0
    assert glance.summary() is told
    clock[0] = 60.0
    assert glance.summary() is not told


def test_no_ledger_or_a_huge_one_is_no_summary(full, tmp_path, monkeypatch):
    assert LedgerGlance(tmp_path / "missing").summary() is None
    monkeypatch.setattr(ledger, "_LARGEST", 1)
    assert LedgerGlance(full).summary() is None


def test_a_damaged_ledger_stops_no_page(full):
    (full / "log").write_bytes(b"no ledger")
    assert LedgerGlance(full).summary() is None
