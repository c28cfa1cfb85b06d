"""`python -m papers`: figures and tables by their names."""

import json

import pytest

from papers import attacks
from papers.__main__ import main, taken
from papers.embedding.settings import FIGURES as EMBEDDED
from papers.page import DIAGRAMS
from papers.registry import FIGURES
from tacit.lab.data import fashion, flights
from tests.lab.data.official import save_fashion


@pytest.fixture(name="run")
def _run(capsys):
    """Run the command to its end: the exit code, the output, the error stream."""

    def run(*words):
        code = main([str(word) for word in words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def test_the_list_names_every_figure(run):
    code, out, _ = run("--list", "--json")
    assert code == 0
    assert {one["name"] for one in json.loads(out) if one["command"]} == set(FIGURES)
    assert {one["name"] for one in json.loads(out) if not one["command"]} == {row.name for row in DIAGRAMS}
    shown = run("--list")[1]
    assert all(name in shown for name in FIGURES)
    assert "Li 2022" in shown


def test_wrong_names_are_refused_before_anything_is_loaded(run):
    code, _, told = run("004-figure-99", "--data", "no-such-data")
    assert code == 2
    assert "004-figure-99" in told
    assert "--list" in told
    assert run()[0] == 2


@pytest.mark.parametrize("as_json", [False, True])
def test_tables_of_the_papers_are_drawn(run, tmp_path, as_json):
    asked = ["002-efficiency", "004-table-1", "--data", "flights", "--rows", "1000", "--out", tmp_path]
    code, out, told = run(*asked, *(["--json"] if as_json else []))
    assert code == 0, told
    assert (tmp_path / "004-table-1.png").is_file()
    if as_json:
        assert [one["figure"] for one in json.loads(out)] == ["002-efficiency", "004-table-1"]
    else:
        assert f"004-table-1: {tmp_path / '004-table-1.png'}" in out
        assert str(tmp_path / "summary.md") in out


def test_options_reach_the_loader(run, tmp_path, monkeypatch):
    seen = {}

    def load(name, **options):
        seen.update(options)
        return flights.load(rows=1000)

    def draw(names, asked, out, **_):
        seen["asked"] = asked
        return []

    monkeypatch.setattr("tacit.lab.data.load", load)
    monkeypatch.setattr("papers.__main__.make", draw)
    options = ["--cache", tmp_path / "kept", "--learning-rate", "0.01"]
    code, _, told = run("004-table-1", *options, "--out", tmp_path / "out")
    assert code == 0, told
    assert seen["cache"] == tmp_path / "kept"
    assert seen["asked"].as_dict()["learning_rate"] == 0.01


@pytest.mark.parametrize("wrong", [["--data", "nothing"], ["--learning-rate", "0"], ["--from", "nothing.parquet"]])
def test_a_mistake_is_told_in_a_line_and_leaves_no_folder(run, tmp_path, wrong):
    code, _, told = run("004-table-1", *wrong, "--out", tmp_path / "out")
    assert code == 2
    assert told.startswith("papers: ")
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_report_on_embeddings_is_drawn_from_records_that_are_kept(run, tmp_path):
    folder = tmp_path / "fashion"
    folder.mkdir()
    save_fashion(fashion.generated(200, 0, test_rows=64), folder)
    asked = ["001-table-2", "--data", "fashion", "--folder", folder, "--scale", "paper", "--epochs", "1"]
    asked += ["--out", tmp_path / "out"]
    code, out, told = run(*asked)
    assert code == 0, told
    assert f"001-table-2: {tmp_path / 'out' / 'embedding' / 'table-2.png'}" in out
    kept = sorted((tmp_path / "out" / "embedding" / "records").iterdir())
    assert {path.stem for path in kept} == set(EMBEDDED["table-2"])
    made = {path: path.stat().st_mtime_ns for path in kept}
    assert run(*asked, "--json")[0] == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == made, "nothing is trained again"
    code, _, told = run(*asked, "--seed", "5")
    assert code == 2
    assert "seed = 0, and now it is 5" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "adult"], ["--folder"]),
        (["--data", "fashion", "--folder", "/nowhere"], ["/nowhere", "dataset-fashion-mnist"]),
        (["--data", "generated:credit", "--rows", "600"], ["fashion, flights, adult"]),
    ],
)
def test_data_that_no_embeddings_are_shown_of(run, arguments, words, tmp_path):
    code, _, told = run("001-table-2", "--out", tmp_path, *arguments)
    assert code == 2
    assert all(word in told for word in words), told


def test_the_table_of_attacks_is_written(run, tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.audit.attacks._network._UPDATES", 4)
    monkeypatch.setattr("tacit.audit.attacks._surrogate._UPDATES", 4)
    monkeypatch.setattr(attacks, "settings", lambda epochs: [attacks.Setting("none")])
    asked = ["attacks", "--data", "generated:credit", "--rows", "600", "--epochs", "2", "--out", tmp_path]
    code, out, told = run(*asked)
    assert code == 0, told
    assert f"attacks: {tmp_path / 'attacks.csv'}" in out
    assert {"attacks.md", "attacks.json", "attacks.csv", "summary.md"} == {path.name for path in tmp_path.iterdir()}
    assert "accumulated(direct_label)" in (tmp_path / "attacks.md").read_text()
    assert json.loads((tmp_path / "attacks.json").read_text())["trainings"][0]["worst"]["value"] > 0.95


def test_pictures_make_no_table_of_attacks(run, tmp_path):
    code, _, told = run("attacks", "--data", "generated:fashion", "--rows", "200", "--out", tmp_path)
    assert code == 2
    assert "pictures" in told


def test_the_papers_scale_takes_a_tenth_of_criteo_unless_told_otherwise():
    assert taken("criteo", "paper", None, None) == (None, 0.1)
    assert taken("criteo", "paper", None, 1.0) == (None, 1.0)
    assert taken("criteo", "paper", 500, None) == (500, None)
    assert taken("criteo", "small", None, 0.1) == (None, 0.1)
    for name in ("avazu", "isic", "flights", "generated:criteo"):
        assert taken(name, "paper", None, None) == (None, None)
