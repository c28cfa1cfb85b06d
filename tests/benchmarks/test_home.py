"""The benchmark of learning at home goes through all of it; how long it takes is not tested here."""

from benchmarks import home


def test_every_part_is_timed(monkeypatch):
    monkeypatch.setenv("TACIT_BENCH_ROWS", "1000")
    monkeypatch.setattr(home, "TESTED", 1000)
    monkeypatch.setattr(home, "ON_CPU", 500)
    results = [(result.case.split(",")[0], result.unit) for result in home.run()]
    learnt = [("an epoch with labels", "rows/s"), ("two epochs", "s"), ("test AUC after two epochs", "AUC")]
    cpu = [("drawing 2", "s"), ("an epoch without labels", "rows/s"), *learnt]
    assert results[:5] == cpu
    assert results[-1] == ("embedding on CPU", "rows/s")
