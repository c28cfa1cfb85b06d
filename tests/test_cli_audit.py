"""`tacit audit` on somebody else's messages: what it says, what it writes, and how it ends."""

import json
import os
import pickle

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from tacit.cli.audit import audit
from tacit.errors import DataError, UsageError

ROWS, WIDTH, BATCH = 1280, 6, 128
app = typer.Typer()
app.command()(audit)


@pytest.fixture(name="files", scope="module")
def _files(tmp_path_factory):
    """An unprotected system's gradients, noise in their place, and a feature party's own."""
    where = tmp_path_factory.mktemp("files")
    noise = np.random.default_rng(0)
    y = (noise.random(ROWS) < 0.3).astype(np.int64)
    residual = np.where(y == 1, -0.7, 0.3)[:, None] + 0.05 * noise.standard_normal((ROWS, 1))
    x = noise.standard_normal((ROWS, 4)).astype(np.float32)
    plain = (residual * noise.standard_normal(WIDTH)).astype(np.float32)
    drawn = noise.standard_normal((ROWS, WIDTH)).astype(np.float32)
    z = x @ noise.standard_normal((4, WIDTH)).astype(np.float32)
    deaf = noise.standard_normal((ROWS, WIDTH)).astype(np.float32)
    np.savez(where / "plain.npz", gradients=plain, labels=y)
    np.savez(where / "noise.npz", gradients=drawn, labels=y)
    np.savez(where / "both.npz", gradients=drawn, labels=y, embeddings=z)
    np.savez(where / "short.npz", gradients=plain, labels=y[:-1])
    np.savez(where / "z.npz", embeddings=z, inputs=x)
    np.savez(where / "deaf.npz", embeddings=deaf, inputs=x)
    return where


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def told(done):
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return json.loads(done.stdout)


def audit_pair(files, out, name, *more):
    return run("--messages", files / name, "--batch-size", BATCH, "--out", out, "--json", *more)


def test_an_unprotected_pair_breaks_its_limit_and_the_worst_attack_is_named(files, tmp_path):
    done = audit_pair(files, tmp_path, "plain.npz", "--limit", "0.6")
    report = told(done)
    assert done.exit_code == 1
    assert report["verdict"] == "broken"
    assert report["worst"]["value"] > 0.99
    assert report["worst"]["low"] <= report["worst"]["value"] <= report["worst"]["high"]
    assert report["worst"]["attack"] in {one["attack"] for one in report["leaks"]}
    assert report["subject"] | {"versions": {}, "files": {}} == report["subject"] | {
        "kind": "files", "side": "features", "run": "plain.npz", "rows": ROWS, "width": WIDTH, "steps": ROWS // BATCH,
        "versions": {}, "files": {},
    }  # fmt: skip
    assert sorted(report["subject"]["files"]) == ["plain.npz"]
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert report["worst"]["attack"] in (tmp_path / "report.html").read_text()


def test_pure_noise_holds_and_what_was_not_tried_is_said(files, tmp_path):
    done = audit_pair(files, tmp_path, "noise.npz", "--limit", "0.62")
    report = told(done)
    assert done.exit_code == 0, [one for one in report["leaks"] if max(one["high"], one["quantile"] or 0) > 0.62]
    assert report["verdict"] == "held"
    missing = {one["what"]: one["why"] for one in report["not_tested"]}
    assert "embeddings" in missing["the attack contextual"]
    assert "without ids" in missing["all visits of an example together"]
    assert any("departs from the protocol" in what for what in missing)


def test_without_a_limit_nothing_is_judged(files, tmp_path):
    done = audit_pair(files, tmp_path, "plain.npz")
    assert (done.exit_code, told(done)["verdict"]) == (0, "no limit")


def test_the_words_name_the_limit_and_those_who_broke_it(files, tmp_path):
    done = run(
        "--messages", files / "plain.npz", "--batch-size", BATCH, "--limit", 0.6, "--out", tmp_path, "--quiet",
    )  # fmt: skip
    assert done.exit_code == 1
    assert "worst: " in done.stdout
    assert "The limit 0.6 is broken, by " in done.stdout
    assert "not tested: the attack contextual" in done.stdout
    assert "report.html" in done.stdout


def test_ids_let_all_visits_be_added_up(files, tmp_path):
    """Heavy noise that is fresh at each of ten visits: alone they tell little, together much."""
    noise = np.random.default_rng(1)
    y = (noise.random(BATCH) < 0.4).astype(np.int64)
    heavy = np.where(y == 1, -1.0, 1.0)[None, :, None] + 4 * noise.standard_normal((10, BATCH, 2))
    ids = np.tile(np.arange(BATCH) + 70_000, 10)
    np.savez(tmp_path / "m.npz", gradients=heavy, labels=np.tile(y, 10), ids=ids)
    report = told(run("--messages", tmp_path / "m.npz", "--out", tmp_path, "--json"))
    visits = {one["attack"]: one["value"] for one in report["leaks"] if one["on"] == "visits"}
    single = {one["attack"]: one["value"] for one in report["leaks"] if one["on"] == "batches"}
    assert visits["accumulated(likelihood)"] > single["likelihood"] + 0.1
    assert report["subject"]["rows"] == BATCH


@pytest.mark.parametrize(("name", "least", "most"), [("z.npz", 0.95, 1.0), ("deaf.npz", 0.0, 0.1)])
def test_the_other_side_reads_features_in_embeddings(files, tmp_path, monkeypatch, name, least, most):
    monkeypatch.setattr("tacit.split.audit._DECODERS", ("linear_decoder",))  # networks take long and find no more
    done = run(
        "--side", "label", "--messages", files / name, "--batch-size", BATCH, "--limit", 0.3, "--out", tmp_path,
        "--json",
    )  # fmt: skip
    report = told(done)
    assert done.exit_code == (least > 0.3)
    assert least <= report["worst"]["value"] <= most
    assert {one["measure"] for one in report["leaks"]} == {"variance_read"}


WRONG = {
    "nothing": ((), UsageError, "nothing to audit"),
    "no out": (("--messages", "{f}/plain.npz"), UsageError, "--out is missing"),
    "no labels": (("--messages", "{f}/z.npz", "--out", "{t}"), DataError, "z.npz holds no array 'gradients'"),
    "no inputs": (
        ("--side", "label", "--messages", "{f}/both.npz", "--out", "{t}"), DataError, "holds no array 'inputs'",
    ),
    "both": (("{t}", "--messages", "{f}/plain.npz"), UsageError, "give one of them"),
    "limit": (("--limit", "0.4", "--messages", "{f}/plain.npz", "--out", "{t}"), UsageError, "0.5 and 1"),
    "no folder": (("{t}",), UsageError, "no party's folder"),
    "lengths": (("--messages", "{f}/short.npz", "--out", "{t}"), DataError, "1279 values in all"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_says_what_to_do(files, tmp_path, case):
    words, kind, said = WRONG[case]
    done = run(*(word.format(f=files, t=tmp_path) for word in words))
    assert isinstance(done.exception, kind), done.output
    assert said in str(done.exception)


def test_a_file_of_python_objects_is_refused_and_nothing_of_it_runs(tmp_path):
    class Bad:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "it ran"),)

    bad, labels = np.array([Bad()] * ROWS, dtype=object), np.arange(ROWS) % 2
    np.savez(tmp_path / "whole.npz", gradients=bad, labels=labels)
    np.savez(tmp_path / "inside.npz", gradients=labels, labels=bad)
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(Bad()))
    torch.save({"gradients": Bad()}, tmp_path / "torch.npz")  # a zip file of another kind
    for name in ("whole", "inside", "bare", "torch"):
        done = run("--messages", tmp_path / f"{name}.npz", "--out", tmp_path)
        assert isinstance(done.exception, DataError)
    assert not (tmp_path / "it ran").exists()


def test_help_shows_examples():
    done = run("--help")
    assert "tacit audit --messages messages.npz" in " ".join(done.stdout.split())


@pytest.mark.parametrize("width", [60, 80])
def test_figures_are_whole_on_a_narrow_screen(files, tmp_path, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("tacit.audit.standard.ATTACKS", ("norm", "spectral", "contextual"))
    done = run("--messages", files / "both.npz", "--batch-size", BATCH, "--out", tmp_path, "--quiet")
    report = json.loads((tmp_path / "report.json").read_text())
    assert any(one["baseline"] is not None for one in report["leaks"])
    for one in report["leaks"]:
        assert f"{one['value']:.3f}" in done.stdout
        assert f"{one['low']:.3f} to {one['high']:.3f}" in done.stdout
        assert one["baseline"] is None or f"{one['baseline']:.3f}" in done.stdout
    assert "nothing is judged: give one with --limit" in done.stdout
    table = done.stdout.partition("not tested")[0]
    assert max(map(len, table.splitlines())) <= width
