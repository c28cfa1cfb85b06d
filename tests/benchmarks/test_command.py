"""`python -m benchmarks`: lines for people, JSON for programs, and an exit code that says whether the goals hold."""

import json

import pytest

import benchmarks
from benchmarks import Result
from benchmarks.__main__ import main


def test_it_gives_the_promised_json(monkeypatch, capsys):
    made = [Result("solver", "one", 1.5, "x", 2.0), Result("solver", "two", 0.5, "x")]
    monkeypatch.setattr(benchmarks, "run", lambda name: iter(made))
    assert main(["solver", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    for result in results:
        assert set(result) == {"bench", "case", "value", "unit", "goal", "holds"}
        assert (result["goal"] is None) == (result["holds"] is None)
    assert main(["solver"]) == 0
    shown = capsys.readouterr().out
    assert "1.5 x" in shown
    assert "holds" in shown
    monkeypatch.setattr(benchmarks, "run", lambda name: iter([Result("solver", "one", 2.5, "x", 2.0)]))
    assert main(["solver"]) == 1
    assert "missed" in capsys.readouterr().out


def test_what_was_measured_is_recorded_in_the_place_of_what_was_there(monkeypatch, tmp_path, capsys):
    path = tmp_path / "benchmarks.json"
    path.write_text('{"solver": {"results": []}, "step": {"results": []}}')
    monkeypatch.setattr("benchmarks.__main__.RECORD", path)
    monkeypatch.setattr(benchmarks, "run", lambda name: iter([Result("solver", "one", 1.5, "x", 2.0)]))
    assert main(["solver", "--record"]) == 0
    recorded = json.loads(path.read_text())
    assert recorded["step"] == {"results": []}
    assert recorded["solver"]["results"] == [{"case": "one", "value": 1.5, "unit": "x", "goal": 2.0, "holds": True}]
    assert {"date", "machine"} <= set(recorded["solver"])
    assert main(["solver"]) == 0
    assert json.loads(path.read_text()) == recorded


def test_an_unknown_benchmark_is_told_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["slover"])
    told = capsys.readouterr().err
    assert "no benchmark 'slover'" in told
    assert "solver" in told


def test_there_are_the_promised_benchmarks():
    assert {"attack", "protect", "solver", "step"} <= set(benchmarks.names())


def test_a_goal_holds_or_not():
    assert Result("b", "c", 1.0, "x", 1.05).holds is True
    assert Result("b", "c", 1.1, "x", 1.05).holds is False
    assert Result("b", "c", 1.1, "x").holds is None
