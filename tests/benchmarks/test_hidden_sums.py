"""The benchmark of hidden sums goes through all steps; how long they take is not tested here."""

import pytest

from benchmarks import hidden_sums


def test_every_step_is_timed_and_bytes_are_counted(monkeypatch):
    pytest.importorskip("coincurve", reason="libsecp256k1 comes with the extra [sums]")
    monkeypatch.setenv("TACIT_BENCH_ROWS", "64")
    results = {result.case: result for result in hidden_sums.run()}
    assert [case.split(",")[0] for case in results][:6] == [
        "label party encrypts and proves",
        "feature party checks labels",
        "generators",
        "feature party shuffles and proves",
        "label party checks a shuffle",
        "label party opens sums",
    ]
    assert results["sent by the label party, once, a row"].value == 294 + 33 / 64
    assert results["sent by the feature party for each partition, a row"].value == 229 + (5 * 33 + 4 * 32) / 64
