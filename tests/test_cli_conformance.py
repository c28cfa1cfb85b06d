"""`tacit conformance`: what a file makes, what is said about it, and what is wrong with a file that can't be used."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tacit.audit.input_attacks.linear_decoder import linear_decoder
from tacit.cli.conformance import conformance
from tacit.contracts import EmbeddingProtection
from tacit.errors import UsageError
from tacit.lab.conformance import load, ours
from tacit.testing import CHECKS, EMBEDDING_CHECKS

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(conformance)

OURS = "from tacit.protect.gradient.{name} import {name}\ndef make(**options):\n    return {name}(**options)\n"
NOISY = """
from tacit.protect.embedding.gaussian import gaussian
def noisy(std: float = 1.0):
    return gaussian(std=std)
"""


def run(*arguments, width=100):
    return CliRunner().invoke(app, [str(one) for one in arguments], terminal_width=width, env={"COLUMNS": str(width)})


@pytest.fixture(name="write")
def _write(tmp_path):
    def write(text: str, name: str = "mine.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


# --- what it says ----------------------------------------------------------------------------------------------------


def test_help_reads_well_and_has_an_example():
    done = run("--help")
    assert done.exit_code == 0
    assert "tacit conformance my_protection.py --option strength=4 --limit 0.6" in " ".join(done.output.split())
    assert "Exit codes: 0" in done.output


def test_a_protection_that_keeps_the_contract_exits_with_0(write, tmp_path):
    done = run(write(OURS.format(name="iso")), "--option", "t=1", "--quick", "--json", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["passed"]
    assert told["kind"] == "gradient"
    assert told["protection"] == "make(t=1)"
    assert [one["name"] for one in told["checks"]] == [check.__name__ for check in CHECKS]
    assert all(one["passed"] and one["detail"] for one in told["checks"])
    assert json.loads((tmp_path / "out" / "conformance.json").read_text()) == told


def test_what_fails_is_told_with_what_was_expected_what_happened_and_what_to_do(write):
    done = run(write(OURS.format(name="none")), "--quick")
    assert done.exit_code == 1
    words = " ".join(done.output.split())
    assert "one class FAILS" in words
    assert "keeps shape passed" in words
    assert "expected: that every row is hidden" in words
    assert "happened: 24 of 24 rows were sent without noise, at step 0" in words
    assert "to do: give noise to every row" in words
    assert f"7 of {len(CHECKS)} checks fail" in words


def test_attacks_are_tried_and_a_limit_is_held_against_them(write, monkeypatch):
    """Against bare gradients, on few rows, beside one of ours."""
    monkeypatch.setattr("tacit.lab.conformance.CHECKS", CHECKS[:1])
    monkeypatch.setattr("tacit.audit.standard.ATTACKS", ("norm", "cosine", "spectral"))
    monkeypatch.setattr("tacit.audit.standard.JOINED", ())
    monkeypatch.setattr("tacit.lab.conformance.ours", lambda limit: dict([*ours(limit).items()][2:]))
    file = write(OURS.format(name="none"))
    done = run(file, "--limit", "0.6", "--data", "generated:credit", "--rows", "1500", width=140)
    assert done.exit_code == 1, done.output
    words = " ".join(done.output.split())
    assert "What attacks reach on generated:credit (leak AUC)" in words
    assert "trains passed" in words
    assert "holds the limit FAILS" in words
    assert "holds 0.6 no" in words
    assert "leak_auc=0.55" in words
    assert "expected: that no attack reaches more than 0.6" in words
    assert "1 of 3 checks fail" in words


def test_one_that_breaks_in_training_fails_there_and_nothing_else_is_trained(write, monkeypatch):
    monkeypatch.setattr("tacit.lab.conformance.CHECKS", CHECKS[:1])
    file = write(
        OURS.format(name="none")
        + """
class Breaks:
    def __init__(self): self.inner = make()
    def init(self): return 0
    def update(self, grad, labels, state, noise, embedding=None):
        if len(grad) > 100: raise KeyError("boom")
        return self.inner.update(grad, labels, state, noise)
    def __call__(self, grad, labels, noise, embedding=None):
        return self.update(grad, labels, 0, noise)
"""
    )
    done = run(f"{file}:Breaks", "--data", "generated:credit", "--rows", "1000", "--json")
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    assert told["checks"][-1]["name"] == "trains"
    assert "KeyError: 'boom' (mine.py, line 9)" in told["checks"][-1]["detail"]
    assert told["attacked"] == []


def test_one_that_ends_the_program_fails(write):
    file = write(
        "class Ends:\n    def init(self): return 0\n    def update(self, *batch): raise SystemExit(0)\n"
        "    def __call__(self, *batch): raise SystemExit(0)\n"
    )
    done = run(file, "--quick")
    assert done.exit_code == 1
    assert "it raised SystemExit" in done.output


def test_an_embedding_protection_is_examined_by_its_own_contract_and_by_decoders(write, monkeypatch):
    monkeypatch.setattr("tacit.lab.conformance.decoders", lambda: [linear_decoder()])
    done = run(write(NOISY), "--data", "generated:credit", "--rows", "1500", "--limit", "0.001", "--json")
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    assert told["kind"] == "embedding"
    wanted = [check.__name__ for check in EMBEDDING_CHECKS]
    assert [one["name"] for one in told["checks"]] == [*wanted, "trains", "holds_the_limit"]
    assert [one["name"] for one in told["checks"] if not one["passed"]] == ["holds_the_limit"]
    mine, bare, _ = told["attacked"]
    assert mine["worst"]["up_to"] < bare["worst"]["up_to"]


# --- the files of the how-to -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "name"), [(0, "steady")])
def test_what_the_how_to_shows_keeps_the_contract(write, place, name):
    page = Path(__file__).parent.parent / "docs" / "howto-add-a-protection.md"
    block = re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(), re.DOTALL)[place]
    done = run(write(block, f"{name}.py"), "--quick", "--json")
    told = json.loads(done.stdout)
    assert not {one["name"]: one["detail"] for one in told["checks"] if not one["passed"]}
    assert told["protection"] == f"{name}()"


# --- wrong use -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:\n", r"mine.py, line 1: def f\(:.*"),
        ("x = 1\n", "nothing that makes a protection"),
        ("def a(): ...\ndef b(): ...\n", "several functions .* a, b: say which, as .*mine.py:a"),
        ("def a():\n    raise RuntimeError('no')\n", r"a\(\) raised RuntimeError: no \(mine.py, line 2\)"),
        ("def a(): return 3\n", r"a\(\) made a int, which is no protection"),
        ("import nothing_of_that_name\n", r"can't be imported: ModuleNotFoundError: .* \(mine.py, line 1\)"),
        ("def a(strength): ...\n", r"missing a required argument: 'strength'; it takes \(strength\)"),
        ("raise SystemExit(0)\n", r"can't be imported: SystemExit: 0 \(mine.py, line 1\)"),
        ("def a(): raise SystemExit(0)\n", r"a\(\) raised SystemExit: 0"),
    ],
    ids=["syntax", "nothing", "several", "raises", "no protection", "import", "option", "exits", "made by exit"],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(write, text, said):
    with pytest.raises(UsageError, match=said):
        load(str(write(text)), {})


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="there is no such file"):
        load(str(tmp_path / "gone.py"), {})
    with pytest.raises(UsageError, match="there is no such file"):
        load(f"{tmp_path / 'gone.py'}:make", {})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--limit", "0.4"], "limit = 0.4"),
        (["--limit", "0.6", "--quick"], "--quick trains nothing"),
        (["--option", "t"], "write it as name=value"),
        (["--option", "t=1", "--option", "t=2"], "gives t twice"),
        (["--option", "scale=1"], "it takes"),
    ],
)
def test_wrong_use_is_a_usage_error_before_anything_runs(write, arguments, said):
    done = run(write(OURS.format(name="iso").replace("**options", "t=1.0")), *arguments)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)


def test_the_factory_is_the_named_one_the_one_with_the_files_name_or_the_only_one(write):
    text = OURS.format(name="none").replace("make", "flat") + OURS.format(name="max_norm").replace("make", "other")
    assert load(str(write(text, "flat.py")), {}).factory == "flat"
    assert load(f"{write(text, 'flat.py')}:other", {}).protection.name == "max_norm"
    with pytest.raises(UsageError, match="no function 'third'; it has: flat, other"):
        load(f"{write(text, 'flat.py')}:third", {})
    made = load(str(write(NOISY)), {"std": 2.0})
    assert isinstance(made.protection, EmbeddingProtection)
    assert made.spelled == "noisy(std=2.0)"


def test_what_lies_beside_the_file_can_be_imported(write):
    write(OURS.format(name="none"), "helper_of_conformance.py")
    file = write("from helper_of_conformance import make as inner\ndef mine(): return inner()\n")
    assert load(str(file), {}).protection.name == "none"
