"""The benchmark of the audit, in small: everything that a party does beside its step is measured."""

from contextlib import contextmanager

import pytest

from benchmarks import audit


@pytest.fixture
def small(monkeypatch):
    for name, value in {"STEPS": 4, "MEASURED": 8, "BLOCK": 4, "EVERY": 4, "FOLLOWED": 256, "BATCHES": (2,)}.items():
        monkeypatch.setattr(audit, name, value)
    monkeypatch.setattr(audit, "SETTINGS", "live.every = 4\nrecord = { last = 2, follow = 256 }")
    monkeypatch.setattr(audit, "audit_files", lambda path, **options: None)
    monkeypatch.setattr(audit, "two_processes", pretended)


@contextmanager
def pretended(*_, settings, **__):
    """Two processes that take a tenth longer where they watch."""
    yield lambda steps: (steps * (1.0 if settings == audit.NOTHING else 1.1), "")


def test_every_part_is_measured_for_both_parties(small):
    results = {result.case: result for result in audit.run()}
    for who in audit.NAMES.values():
        for part in audit.PARTS:
            result = results[f"{who}'s step with {part} over plain"]
            assert result.unit == "x"
            assert result.goal == (1.03 if part == "looks" else None)
            assert result.value > 1
        assert results[f"{who}'s step with all of it over plain"].value > 0
    watching = results["step of two processes that watch over two that do not"]
    assert watching.value == pytest.approx(1.1)
    assert watching.holds is False
    attacks, decision, audited = (
        next(result for case, result in results.items() if word in case)
        for word in (
            "the gate's attacks on 2 batches and 256",
            "its decision on 2 batches and 256",
            "tacit audit of 2 x 1024",
        )
    )
    assert 0 < attacks.value < decision.value
    assert audited.unit == attacks.unit == decision.unit == "s"
