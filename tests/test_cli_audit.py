"""`tacit audit` on somebody else's files: what it says, what it writes, and how it ends."""

import json
import os

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
    """An unprotected system's gradients, noise in their place, labels, and a feature party's own."""
    where = tmp_path_factory.mktemp("files")
    noise = np.random.default_rng(0)
    y = (noise.random(ROWS) < 0.3).astype(np.int64)
    residual = np.where(y == 1, -0.7, 0.3)[:, None] + 0.05 * noise.standard_normal((ROWS, 1))
    x = noise.standard_normal((ROWS, 4)).astype(np.float32)
    np.save(where / "g.npy", (residual * noise.standard_normal(WIDTH)).astype(np.float32))
    np.save(where / "noise.npy", noise.standard_normal((ROWS, WIDTH)).astype(np.float32))
    np.save(where / "y.npy", y)
    np.save(where / "x.npy", x)
    np.save(where / "z.npy", x @ noise.standard_normal((4, WIDTH)).astype(np.float32))
    np.save(where / "deaf.npy", noise.standard_normal((ROWS, WIDTH)).astype(np.float32))
    return where


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def told(done):
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return json.loads(done.stdout)


def audit_pair(files, out, name, *more):
    pair = ("--gradients", files / name, "--labels", files / "y.npy", "--batch-size", BATCH)
    return run(*pair, "--out", out, "--json", *more)


def test_an_unprotected_pair_breaks_its_limit_and_the_worst_attack_is_named(files, tmp_path):
    done = audit_pair(files, tmp_path, "g.npy", "--limit", "0.6")
    report = told(done)
    assert done.exit_code == 1
    assert report["verdict"] == "broken"
    assert report["worst"]["value"] > 0.99
    assert report["worst"]["low"] <= report["worst"]["value"] <= report["worst"]["high"]
    assert report["worst"]["attack"] in {one["attack"] for one in report["leaks"]}
    assert report["subject"] | {"versions": {}, "files": {}} == report["subject"] | {
        "kind": "files", "side": "features", "run": "g.npy", "rows": ROWS, "width": WIDTH, "steps": ROWS // BATCH,
        "versions": {}, "files": {},
    }  # fmt: skip
    assert sorted(report["subject"]["files"]) == ["g.npy", "y.npy"]
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert report["worst"]["attack"] in (tmp_path / "report.html").read_text()


def test_pure_noise_holds_and_what_was_not_tried_is_said(files, tmp_path):
    done = audit_pair(files, tmp_path, "noise.npy", "--limit", "0.62")
    report = told(done)
    assert done.exit_code == 0, [one for one in report["leaks"] if max(one["high"], one["quantile"] or 0) > 0.62]
    assert report["verdict"] == "held"
    missing = {one["what"]: one["why"] for one in report["not_tested"]}
    assert "embeddings" in missing["the attack contextual"]
    assert "--ids" in missing["all visits of an example together"]
    assert any("departs from the protocol" in what for what in missing)


def test_without_a_limit_nothing_is_judged(files, tmp_path):
    done = audit_pair(files, tmp_path, "g.npy")
    assert (done.exit_code, told(done)["verdict"]) == (0, "no limit")


def test_the_words_name_the_limit_and_those_who_broke_it(files, tmp_path):
    done = run(
        "--gradients", files / "g.npy", "--labels", files / "y.npy", "--batch-size", BATCH, "--limit", 0.6,
        "--out", tmp_path, "--quiet",
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
    np.save(tmp_path / "g.npy", heavy)
    np.save(tmp_path / "y.npy", np.tile(y, 10))
    np.save(tmp_path / "ids.npy", np.tile(np.arange(BATCH) + 70_000, 10))
    words = ("--gradients", tmp_path / "g.npy", "--labels", tmp_path / "y.npy", "--out", tmp_path, "--json")
    report = told(run(*words, "--ids", tmp_path / "ids.npy"))
    visits = {one["attack"]: one["value"] for one in report["leaks"] if one["on"] == "visits"}
    single = {one["attack"]: one["value"] for one in report["leaks"] if one["on"] == "batches"}
    assert visits["accumulated(likelihood)"] > single["likelihood"] + 0.1
    assert report["subject"]["rows"] == BATCH


@pytest.mark.parametrize(("name", "least", "most"), [("z.npy", 0.95, 1.0), ("deaf.npy", 0.0, 0.1)])
def test_the_other_side_reads_features_in_embeddings(files, tmp_path, monkeypatch, name, least, most):
    monkeypatch.setattr("tacit.company.audit._DECODERS", ("linear_decoder",))  # networks take long and find no more
    done = run(
        "--side", "label", "--embeddings", files / name, "--inputs", files / "x.npy", "--batch-size", BATCH,
        "--limit", 0.3, "--out", tmp_path, "--json",
    )  # fmt: skip
    report = told(done)
    assert done.exit_code == (least > 0.3)
    assert least <= report["worst"]["value"] <= most
    assert {one["measure"] for one in report["leaks"]} == {"variance_read"}


WRONG = {
    "nothing": ((), "nothing to audit"),
    "no out": (("--gradients", "{f}/g.npy", "--labels", "{f}/y.npy"), "--out is missing"),
    "no labels": (("--gradients", "{f}/g.npy", "--out", "{t}"), "pass --labels as well"),
    "no inputs": (("--side", "label", "--embeddings", "{f}/z.npy", "--out", "{t}"), "pass --inputs as well"),
    "both": (("{t}", "--gradients", "{f}/g.npy"), "give one of them"),
    "limit": (("--limit", "0.4", "--gradients", "{f}/g.npy", "--labels", "{f}/y.npy", "--out", "{t}"), "0.5 and 1"),
    "no folder": (("{t}",), "no party's folder"),
    "lengths": (("--gradients", "{f}/g.npy", "--labels", "{t}/short.npy", "--out", "{t}"), "1279 values in all"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_says_what_to_do(files, tmp_path, case):
    np.save(tmp_path / "short.npy", np.arange(ROWS - 1) % 2)
    words, said = WRONG[case]
    done = run(*(word.format(f=files, t=tmp_path) for word in words))
    assert isinstance(done.exception, UsageError), done.output
    assert said in str(done.exception)


def test_a_file_of_python_objects_is_refused_and_nothing_of_it_runs(files, tmp_path):
    class Bad:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "it ran"),)

    np.save(tmp_path / "g.npy", np.array([Bad()] * ROWS, dtype=object), allow_pickle=True)
    torch.save({"a": Bad()}, tmp_path / "g.pt")
    for name in ("g.npy", "g.pt"):
        done = run("--gradients", tmp_path / name, "--labels", files / "y.npy", "--out", tmp_path)
        assert isinstance(done.exception, DataError)
    assert not (tmp_path / "it ran").exists()


def test_help_shows_examples():
    done = run("--help")
    assert "tacit audit --gradients g.npy" in " ".join(done.stdout.split())


@pytest.mark.parametrize("width", [60, 80])
def test_figures_are_whole_on_a_narrow_screen(files, tmp_path, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("tacit.audit.standard.ATTACKS", ("norm", "spectral", "contextual"))
    pair = ("--gradients", files / "noise.npy", "--labels", files / "y.npy", "--embeddings", files / "z.npy")
    done = run(*pair, "--batch-size", BATCH, "--out", tmp_path, "--quiet")
    report = json.loads((tmp_path / "report.json").read_text())
    assert any(one["baseline"] is not None for one in report["leaks"])
    for one in report["leaks"]:
        assert f"{one['value']:.3f}" in done.stdout
        assert f"{one['low']:.3f} to {one['high']:.3f}" in done.stdout
        assert one["baseline"] is None or f"{one['baseline']:.3f}" in done.stdout
    assert "nothing is judged: give one with --limit" in done.stdout
    table = done.stdout.partition("not tested")[0]
    assert max(map(len, table.splitlines())) <= width
