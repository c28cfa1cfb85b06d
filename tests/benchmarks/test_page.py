from benchmarks import run


def test_the_benchmark_of_the_page_tells_ratios(monkeypatch):
    monkeypatch.setenv("TACIT_BENCH_POINTS", "4000")
    results = list(run("page"))
    assert len({result.case for result in results}) == len(results) == 5
    assert all(result.unit == "x" and result.value > 0 and result.goal for result in results)
