"""The benchmark of embedding protections, in small: each is measured, and every figure has a case of its own."""

from benchmarks import embedding
from tacit.split.protect.embedding import names


def test_every_protection_is_measured(monkeypatch):
    monkeypatch.setattr(embedding, "ROUNDS", 1)
    monkeypatch.setattr(embedding, "REPEATS", 1)
    monkeypatch.setattr(embedding, "ROWS", (64,))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    results = list(embedding.run())
    assert {name for name, _ in embedding.CASES} == set(names())
    for name in names():
        assert any(f"step with {name}(" in result.case and result.unit == "x" for result in results), name
    assert any("distance correlation and gradient from all pairs, 64 rows" in result.case for result in results)
    assert len({result.case for result in results}) == len(results)
    assert all(result.value > 0 and result.goal is None for result in results)
