from benchmarks import predict, run


def test_the_benchmark_of_predictions_tells_a_ratio(monkeypatch):
    monkeypatch.setenv("TACIT_BENCH_ROWS", "70000")
    monkeypatch.setattr(predict, "ROUNDS", 1)
    results = list(run("predict"))
    assert [result.unit for result in results] == ["MB/s", "MB/s", "x", "rows/s"]
    assert all(result.value > 0 for result in results)
