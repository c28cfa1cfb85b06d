"""The papers' claims: complete before they are measured, judged by their thresholds, recorded as they are judged."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from papers.bibliography import PAPERS
from papers.claims import claims, judged
from papers.claims.__main__ import main
from papers.claims.bench import QUICK, SCALES, Bench, whole
from papers.claims.measures import MEASURES
from papers.claims.pictures import draw_all
from papers.claims.reading import NONE, Frontier, best_margin, frontier, less, mean, median, point, q95
from papers.claims.record import measured, numbers_of, read
from papers.page import DIAGRAMS, THUMBNAILS, rows, run_of
from papers.registry import FIGURES
from tacit.errors import DataError, UsageError

ROOT = Path(__file__).parents[2]
CLAIMS = claims()
RECORD = read()
QUICKLY = [name for name, claim in CLAIMS.items() if claim.quick]


def test_there_are_claims_of_every_paper():
    assert len(CLAIMS) >= 30
    assert {claim.paper for claim in CLAIMS.values()} == set(PAPERS)
    assert len(QUICKLY) == 3
    assert set(MEASURES) == set(CLAIMS)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_is_judged_by_its_own_numbers_alone(name):
    claim = CLAIMS[name]
    used = {node.id for node in ast.walk(ast.parse(claim.holds, mode="eval")) if isinstance(node, ast.Name)}
    assert used - {"abs"} == set(claim.numbers)
    assert claim.figure in FIGURES
    judged(claim, dict.fromkeys(claim.numbers, 0.5))  # the threshold can be read


# --- judging ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "numbers", "verdict"),
    [
        ("confidence", {"gap": 0.75}, "holds"),
        ("confidence", {"gap": 0.7499}, "differs"),
        ("confidence", {"gap": None}, "not comparable"),
        ("confidence", {"gap": float("nan")}, "not comparable"),
        ("upper-gradients", {"ratio": 0.5, "auc": 0.75}, "holds"),
        ("upper-gradients", {"ratio": 2.1, "auc": 0.5}, "differs"),
        ("balanced-toy", {"positive": 0.11, "negative": 0.0, "norm": 0.9}, "holds"),
        ("balanced-toy", {"positive": 0.12, "negative": 0.0, "norm": 0.9}, "differs"),
        ("flexible", {"rises": 0}, "holds"),
        ("industry-utility", {"iso": 0.1, "at_025": 0.02, "at_01": 0.02, "max_norm": 0.021}, "differs"),
    ],
)
def test_a_verdict_is_that_of_the_threshold(name, numbers, verdict):
    assert judged(CLAIMS[name], numbers) == verdict


def test_a_number_that_was_not_measured_is_an_error():
    with pytest.raises(UsageError, match="auc"):
        judged(CLAIMS["upper-gradients"], {"ratio": 1.0})


# --- reading results -------------------------------------------------------------------------------------------------

S4 = ("marvell", "scale", 4.0)


def results():
    """Two seeds of no noise and of three settings, three batches each, with leaks on both sides of a half."""
    settings = {NONE: 1.0, ("iso", "t", 1.0): 0.9, ("iso", "t", 4.0): 0.8, S4: 0.5}
    worth = {NONE: 0.7, ("iso", "t", 1.0): 0.65, ("iso", "t", 4.0): 0.6, S4: 0.65}
    made = []
    for number, ((setting, leak), seed) in enumerate((one, seed) for one in settings.items() for seed in (0, 1)):
        knob, strength = setting[1:]
        options = "{}" if knob is None else f'{{"{knob}": {strength}}}'
        common = {"replica": number, "protection": setting[0], "knob": knob, "strength": strength, "options": options}
        common |= {"seed": seed, "train_loss": 0.5, "test_loss": 1 - worth[setting], "test_auc": worth[setting]}
        each = [leak - 0.2, leak - 0.2, leak - 0.05 + 0.1 * seed]
        made += [{**common, "part": "batch", "step": k, "norm@cut": x} for k, x in enumerate(each)]
        made += [{**common, "part": part, "step": 3, "norm@cut": 0.99} for part in ("stretch", "whole")]
    return pl.DataFrame(made, infer_schema_length=None)


def test_leaks_are_those_of_batches_as_they_are():
    table = results()
    assert mean(table, S4, "norm@cut") == pytest.approx((0.3 + 0.3 + 0.5) / 3), "below a half"
    assert median(table, S4, "norm@cut") == pytest.approx(0.3)
    assert q95(table, S4, "norm@cut") == pytest.approx((0.435 + 0.525) / 2)
    assert np.isnan(mean(table, ("marvell", "scale", 1.0), "norm@cut"))


def test_a_frontier_is_of_the_points_that_no_other_one_beats():
    table = results()
    iso, marvell = (frontier(table, name, "test_auc", "norm@cut") for name in ("iso", "marvell"))
    assert iso.utility.tolist() == [0.6, 0.65, 0.7]
    assert np.diff(iso.leak).tolist() == pytest.approx([0.1, 0.1])
    assert marvell.utility.tolist() == [0.65, 0.7]
    lead = less(marvell, iso)
    assert lead == pytest.approx(0.2, abs=1e-3)  # 0.4 less at 0.65, the same at 0.7
    assert less(iso, marvell) == pytest.approx(-0.2, abs=1e-3)
    worse = table.with_columns(
        pl.when(pl.col("protection") == "marvell").then(0.1).otherwise("test_auc").alias("test_auc")
    )
    assert frontier(worse, "marvell", "test_auc", "norm@cut").utility.tolist() == [0.1, 0.7], "less leaks there"
    beaten = table.with_columns(
        pl.when(pl.col("protection") == "none").then(0.1).otherwise("test_auc").alias("test_auc")
    )
    assert frontier(beaten, "marvell", "test_auc", "norm@cut").utility.tolist() == [0.65], (
        "no noise leaks more for less"
    )


def test_a_loss_is_the_better_the_smaller_it_is():
    assert point(results(), S4, "test_loss", "norm@cut")[0] == pytest.approx(-0.35)
    assert frontier(results(), "iso", "test_loss", "norm@cut").utility.tolist() == pytest.approx([-0.4, -0.35, -0.3])


def test_beyond_its_points_a_frontier_has_the_nearest_ones_leak():
    one = Frontier(np.array([0.6, 0.7]), np.array([0.5, 0.9]))
    assert one.at(np.array([0.5, 0.65, 0.8])).tolist() == pytest.approx([0.5, 0.7, 0.9])
    assert less(one, Frontier(np.array([0.8, 0.9]), np.array([0.5, 0.9]))) is None


def test_a_lead_is_over_those_that_are_as_useful():
    assert best_margin([(0.7, 5.0), (0.6, 9.0)], [(0.7, 4.0), (0.65, 8.5)]) == pytest.approx(1.0)
    assert best_margin([(0.7, 5.0)], [(0.69, 1.0)]) is None


# --- the record ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORD["claims"])
def test_a_recorded_verdict_is_that_of_its_numbers(name):
    claim, kept = CLAIMS[name], RECORD["claims"][name]
    assert kept["judged"][0]["data"] == claim.data[0], "the first data set decides"
    assert kept["verdict"] == kept["judged"][0]["verdict"]
    for line in kept["judged"]:
        assert line["verdict"] == judged(claim, line["numbers"])
        assert line["run"] == f"{MEASURES[name].run} on {line['data']}"
        assert RECORD["runs"][line["run"]]["seconds"] >= 0


def test_every_claim_is_judged_but_for_those_that_files_of_pictures_decide():
    missing = set(CLAIMS) - set(RECORD["claims"])
    assert {CLAIMS[name].data[0] for name in missing} <= {"skin", "fashion"}
    assert all(kept["verdict"] for kept in RECORD["claims"].values())


def test_no_more_than_six_claims_are_not_comparable():
    assert sum(kept["verdict"] == "not comparable" for kept in RECORD["claims"].values()) <= 6


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("claims"), scales=QUICK, only=("none",))


@pytest.mark.parametrize("name", QUICKLY)
def test_three_claims_are_judged_anew_as_they_are_recorded(name, bench):
    claim = CLAIMS[name]
    numbers, _ = numbers_of(claim, claim.data[0], bench)
    assert judged(claim, numbers) == RECORD["claims"][name]["verdict"], numbers


def test_what_is_measured_is_written_down_at_once_and_what_lacks_its_files_is_left(bench, tmp_path):
    told, record = [], tmp_path / "claims.json"
    kept = measured(["directions"], bench, record, told=told.append)
    assert "skin" in "".join(told)
    assert "not measured" in "".join(told)
    assert [line["data"] for line in kept["claims"]["directions"]["judged"]] == ["flights", "generated:criteo"]
    assert set(kept["runs"]) == {"observations on flights", "observations on generated:criteo"}
    with pytest.raises(UsageError, match="there is no claim nothing"):
        measured(["nothing"], bench, record, told=told.append)


def test_a_claim_is_not_recorded_before_the_data_that_decides_has(bench, tmp_path):
    told, record = [], tmp_path / "claims.json"
    assert CLAIMS["open-book"].data[0] == "generated:criteo"
    known = {"open-book": replace(CLAIMS["open-book"], data=("skin", "generated:criteo"))}
    kept = measured([], bench, record, told=told.append, known=known)
    assert kept == {"claims": {}, "runs": {}}
    assert "not recorded before skin has decided" in told[-1]


def test_claims_about_a_data_set_are_judged_on_its_own_files_at_the_papers_scale(tmp_path):
    known, scales = whole("criteo")
    assert set(known) == {name for name, claim in CLAIMS.items() if "generated:criteo" in claim.data}
    assert {claim.data for claim in known.values()} == {("criteo",)}
    assert {claim.holds for claim in known.values()} == {CLAIMS[name].holds for name in known}
    assert (scales["criteo"].size, scales["criteo"].rows, scales["criteo"].sample) == ("paper", None, 0.1)
    assert set(whole("isic")[0]) == {name for name, claim in CLAIMS.items() if "skin" in claim.data}
    with pytest.raises(DataError, match="criteo"):
        Bench(tmp_path, {"criteo": tmp_path / "nowhere"}, scales=scales).result("trade-offs", "criteo")
    with pytest.raises(UsageError, match="no claim of the papers is about credit"):
        whole("credit")


def test_files_that_are_not_here_are_asked_for_by_name(tmp_path):
    with pytest.raises(DataError, match=r"put train.csv .* into a folder skin of --files"):
        Bench(tmp_path, tmp_path / "files").result("observations", "skin")


def test_the_command_says_what_is_wrong_in_a_line(capsys, tmp_path):
    assert main(["nothing", "--out", str(tmp_path), "--record", str(tmp_path / "claims.json")]) == 2
    assert capsys.readouterr().err.startswith("papers: there is no claim nothing")


def test_papers_are_cited_by_the_names_of_the_bibliography_and_never_by_a_number():
    page = (ROOT / "docs" / "ref-papers.md").read_text()
    cited = set(re.findall(r"^\| ([A-Z]\w+ \d{4}[ab]?) \|", page, re.MULTILINE))
    assert set(PAPERS) <= cited
    authors = "|".join({key.partition(" ")[0] for key in cited})
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md")]:
        text = path.read_text()
        assert set(re.findall(rf"\b(?:{authors}) 20\d\d[ab]?\b", text)) <= cited, path
        assert not re.search(r"\b(?:papers?|seeds?|reports?) `?00[0-4]\b(?!-)", text), path


# --- the page --------------------------------------------------------------------------------------------------------


def test_every_figure_has_a_row_with_a_command_that_draws_it():
    drawn = [row for row in rows() if row.command]
    assert [row.name for row in drawn] == list(FIGURES)
    assert [row for row in rows() if not row.command] == list(DIAGRAMS)
    for row in drawn:
        assert row.command.startswith(f"python -m papers {row.name}")
        assert row.differs or isinstance(row.differs, str)
    for figure in FIGURES.values():
        data = run_of(figure)[1]
        assert data == "toy" or any(data.startswith(known) for known in SCALES)


def test_pictures_are_small_and_those_that_lack_their_files_are_left(bench, tmp_path):
    told = []
    (made,) = draw_all(bench, tmp_path, names=["004-figure-2", "004-figure-9"], told=told.append)
    assert made == tmp_path / "004-figure-2.png"
    assert made.stat().st_size < 100_000
    assert "004-figure-9: not drawn, skin is not here" in "".join(told)


def test_every_thumbnail_is_of_a_figure():
    assert {path.stem for path in THUMBNAILS.glob("*.png")} <= set(FIGURES)
