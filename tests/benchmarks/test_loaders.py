from benchmarks import run


def test_the_benchmark_of_the_loaders_tells_rates_and_ratios(monkeypatch):
    monkeypatch.setenv("TACIT_BENCH_ROWS", "2000")
    results = list(run("loaders"))
    assert len({result.case for result in results}) == len(results) == 1 + 3 * 5
    assert {result.unit for result in results} == {"rows/s", "x"}
    assert all(result.value > 0 for result in results)
    for name in ("criteo", "avazu", "own Parquet file"):
        assert sum(result.case.startswith(name) for result in results) == 5
