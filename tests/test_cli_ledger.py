"""`tacit ledger`: what has been spent, from the command line."""

import json

import numpy as np
import pytest
import typer
from tacit.ledger.ledger import Ledger
from tacit.ledger.run import Run
from typer.testing import CliRunner

from tacit.align.batches import digest
from tacit.cli.ledger import ledger
from tacit.contracts import Event
from tacit.errors import StorageError, UsageError

RUN = Run(
    name="september", contract="contract", alignment="alignment", role="label", count=1000, batch_size=100, epochs=2,
    seed=3, test_share=0.15,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A party's folder with a run of sixteen answered steps."""
    with Ledger(tmp_path / "ledger") as book:
        run = book.begin(RUN, np.arange(1000, dtype=np.uint64), budget=0.7)
        for step in range(16):
            rows = digest(RUN.rows("train", step))
            run.answer("train", step, RUN.turn("train", step), rows, Event("none"), {"power": 0.0})
    return tmp_path


def run(*words):
    app = typer.Typer()
    app.command()(ledger)
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "120"})


def test_a_table_that_can_be_read(folder):
    done = run("--folder", folder, "--check")
    assert done.exit_code == 1, "the worst case is above the budget"
    said = " ".join(done.stdout.split())
    assert "september" in said
    assert "1600 answers about them in 1 run; the most visited one 2 times" in said
    assert "1.000; budget: 0.700" in said
    assert "none leaves rows as they are" in said
    assert "records, " in said
    assert "all as they were written" in said


def test_the_same_as_json(folder):
    done = run("--folder", folder, "--json")
    found = json.loads(done.stdout)
    assert found["answers"] == sum(int(visits) * examples for visits, examples in found["visits"].items()) == 1600
    assert (found["worst_case"], found["budget"], found["checked"]) == (1.0, 0.7, None)
    (line,) = found["each"]
    assert (line["trained"], line["mechanisms"], line["worst_case"]) == (16, ["none"], 1.0)
    assert found["head"] == Ledger(folder / "ledger").check().head
    assert json.loads(run("--folder", folder, "--json", "--check").stdout)["checked"]["head"] == found["head"]


def test_damage_and_no_ledger_are_told(folder, tmp_path):
    log = folder / "ledger" / "log"
    whole = log.read_bytes()
    log.write_bytes(whole[:-20] + b"x" + whole[-19:])
    done = run("--folder", folder, "--check")
    assert isinstance(done.exception, StorageError)
    assert "damaged at byte" in str(done.exception)
    (tmp_path / "nobody").mkdir()
    done = run("--folder", tmp_path / "nobody")
    assert isinstance(done.exception, UsageError)
    assert "has no ledger yet" in str(done.exception)
