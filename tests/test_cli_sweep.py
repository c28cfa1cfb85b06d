"""tacit sweep and tacit choose, as a user meets them."""

import json
import sys
from dataclasses import replace

import polars as pl
import pytest
from typer.testing import CliRunner

from tacit.cli import app, main
from tacit.cli.sweep import _print_choice as print_choice
from tacit.cli.sweep import _print_files as print_files
from tacit.errors import UsageError
from tacit.lab import sweep
from tacit.lab.choosing import Choice, Point
from tacit.lab.data import generated
from tacit.lab.sweeping import results
from tacit.lab.sweeping.settings import Setting

ARGUMENTS = ["--data", "generated:credit", "--rows", "600", "--protect", "iso(t=2000),max_norm", "--epochs", "1"]


def invoke(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments], terminal_width=100)


@pytest.fixture(name="told")
def _told(monkeypatch, capsys):
    """Run the command line to its end: the exit code, and the error stream."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["tacit", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().err

    return run


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    out = tmp_path_factory.mktemp("swept")
    done = invoke("sweep", *ARGUMENTS, "--batch-size", "64", "--quick", "--out", out, "--json")
    assert done.exit_code == 0, done.output
    return out, json.loads(done.stdout)


def test_the_json_is_a_list_of_settings(swept):
    _, found = swept
    assert [one["spelled"] for one in found] == ["none", "iso(t=2000)", "max_norm"]
    for one in found:
        assert set(one["worst"]) == {"attack", "value", "low", "high", "part"}
        assert one["untried"] == ["likelihood@cut", "learned@cut", "spectral@cut", "contextual@cut"]
        assert (one["notes"], one["papers"], one["failed"]) == ([], None, None)
        assert one["worst"]["low"] <= one["worst"]["value"] <= one["worst"]["high"]
        assert 0 < one["test_auc"] < 1
    assert found[0]["worst"]["value"] > 0.9


def test_there_is_one_parquet_and_a_picture(swept):
    out, _ = swept
    assert sorted(path.name for path in out.iterdir()) == ["results.parquet", "tradeoff.svg"]
    assert set(results.read(out).whole["protection"]) == {"none", "iso", "max_norm"}


def test_the_same_command_again_shows_the_table_at_once(swept):
    out, found = swept
    done = invoke("sweep", *ARGUMENTS, "--batch-size", "64", "--quick", "--out", out)
    assert done.exit_code == 0, done.output
    for words in (
        "iso(t=2000)",
        f"{found[0]['test_auc']:.3f}",
        "by attack",
        "Not tried: likelihood",
        str(out / "results.parquet"),
    ):
        assert words in done.output.replace("\n", "")
    with pytest.raises(UsageError, match="epochs = 1, now it is 2"):
        CliRunner().invoke(
            app, ["sweep", *ARGUMENTS[:-1], "2", "--batch-size", "64", "--quick", "--out", str(out)],
            catch_exceptions=False,
        )  # fmt: skip


def test_choosing_from_a_sweep(swept, tmp_path):
    out, found = swept
    limit = (found[1]["worst"]["high"] + 0.8) / 2
    choose = ["choose", "--limit", limit, "--out", tmp_path, "--from"]
    with pytest.raises(UsageError, match=r"may read the labels: likelihood, learned, spectral, contextual; .*--quick"):
        CliRunner().invoke(app, [*map(str, choose), str(out)], catch_exceptions=False)
    assert not list(tmp_path.iterdir())
    done = invoke(*choose, out / "results.parquet", "--quick")
    assert done.exit_code == 0, done.output
    assert "Take iso(t=2000): test AUC" in done.output
    assert "But not tried: likelihood, learned, spectral, contextual: they may read it." in done.output
    assert "against no protection" in done.output
    assert (tmp_path / "choose.svg").exists()
    asked = json.loads(invoke(*choose, out, "--quick", "--json").stdout)
    assert asked["untried"] == ["likelihood@cut", "learned@cut", "spectral@cut", "contextual@cut"]
    assert (asked["notes"], asked["papers"]) == ([], None)
    assert asked["holds"]
    assert asked["chosen"]["spelled"] == "iso(t=2000)"
    assert asked["cost"] == pytest.approx(asked["baseline"]["test_auc"] - asked["chosen"]["test_auc"])


def test_no_setting_under_the_limit_is_a_finding(swept, tmp_path):
    done = invoke("choose", "--limit", "0.501", "--quick", "--from", swept[0], "--out", tmp_path)
    assert done.exit_code == 1
    assert "No setting keeps every attack under 0.501. The nearest is iso(t=2000)" in done.output


def test_choosing_sweeps_where_there_is_no_sweep(swept, tmp_path):
    done = invoke("choose", "--limit", "0.99", *ARGUMENTS, "--batch-size", "64", "--quick", "--out", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "results.parquet").exists()
    assert json.loads(done.stdout)["holds"]


def test_waves_notes_and_the_papers_are_told(swept, tmp_path):
    whole = results.read(swept[0])
    noted = whole.table.with_columns(notes=pl.when(pl.col("part") == "whole").then(pl.lit("learned: too few rows")))
    results.write(
        tmp_path / "results.parquet", noted,
        {
            **whole.metadata, "waves": [2, 1], "papers": "the papers train longer",
        },
    )  # fmt: skip
    said = invoke("choose", "--from", tmp_path, "--limit", "0.9", "--quick").output
    assert "Trained in 2 waves of 2 replicas or fewer" in said
    assert "Note: the papers train longer." in said
    assert said.count("Note: learned: too few rows.") == 1


def test_an_interruption_says_what_is_kept(told, monkeypatch, tmp_path):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tacit.lab.data.load", lambda *_, **__: generated.table(200, (5,), 1, 0.5, 0))
    monkeypatch.setattr("tacit.lab.sweeping.running.sweep", stop)
    code, said = told("sweep", "--out", tmp_path)
    assert code == 130
    assert said.startswith("tacit: interrupted; 0 finished waves are kept")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sweep", "--protect", "marvel", "--data", "nothing"], ["no protection 'marvel'", "marvell"]),
        (["sweep", "--data", "nothing"], ["nothing", "flights"]),
        (["choose", "--limit", "0.4"], ["between 0.5"]),
        (["choose", "--from", "nothing.parquet"], ["there is no nothing.parquet"]),
        (["sweep", "--protect", " , "], ["--protect names no protection"]),
        (["sweep", "--attacks", "norm,learned"], ["learned can't be tried on every batch", "residual"]),
        (["choose", "--attacks", "norm,residual"], ["left out: cosine, hint"]),
        (["sweep", "--learning-rate", "0"], ["learning_rate = 0.0"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_and_leaves_nothing(told, arguments, words, tmp_path):
    out = tmp_path / "out"
    code, said = told(*arguments, "--out", out)
    assert code == 2
    assert not out.exists()
    assert said.startswith("tacit: ")
    assert said.count("\n") == 1
    assert all(word in said for word in words), said


def test_options_reach_the_loader_and_the_sweep(monkeypatch, tmp_path):
    seen = {}

    def load(name, **options):
        options.pop("progress")(1, 2)
        seen.update(options)
        return generated.table(200, (5,), 1, 0.5, 0)

    def run(data, **options):
        seen.update(options)
        return sweep(data, **{**options, "points": 2, "network": {"width": 4, "layers": 2, "cut": 1}})

    monkeypatch.setattr("tacit.lab.data.load", load)
    monkeypatch.setattr("tacit.lab.sweeping.running.sweep", run)
    done = invoke(
        "sweep", "--protect", "none", "--cache", tmp_path / "kept", "--learning-rate", "0.01",
        "--attacks", "norm, residual", "--epochs", 1, "--quick", "--out", tmp_path / "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert (seen["cache"], seen["learning_rate"]) == (tmp_path / "kept", 0.01)
    assert seen["attacks"] == ["norm", "residual"]
    assert "Not tried: cosine, hint, likelihood, learned, spectral, contextual: they may read it." in done.output


@pytest.mark.parametrize(("cost", "words"), [(0.0, " (no loss)"), (0.00001, " (no loss)"), (0.02, " (-0.0200 against")])
def test_what_a_setting_costs(capsys, cost, words):
    bare, point = (Point(Setting(name), 1, 0.8, 0.4, 0.5, 0.5, 0.55, "norm@cut", "whole") for name in ("none", "iso"))
    print_choice(Choice(0.6, replace(point, test_auc=0.8 - cost, part="updates 1 to 8"), True, bare))
    said = capsys.readouterr().out
    assert words in said
    assert said.endswith("worst attack norm, updates 1 to 8, up to 0.550.\n")


def test_the_reason_for_no_picture(swept, capsys):
    done = results.read(swept[0])
    print_files(done, [], None)
    assert "no setting has both" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["sweep", "choose"])
def test_help_reads_well(command):
    done = invoke(command, "--help")
    assert done.exit_code == 0
    assert "--protect" in done.output
