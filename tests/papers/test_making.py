"""Figures from their names: what is trained for them, once, and what comes of it."""

import json
from dataclasses import replace
from importlib.resources import files

import polars as pl
import pytest
import torch

from papers import balanced
from papers.claims.record import read
from papers.labels import label_of, others_of
from papers.making import make, make_from
from papers.observing import observe
from papers.recipes import RECIPES, Asked, results
from papers.registry import FIGURES
from tacit.errors import DataError, UsageError
from tacit.lab.data.rows import Data, Pictures, Rows, Table
from tacit.lab.stack.network import network_for
from tacit.lab.sweeping.settings import Setting

TINY = {"cut": 2, "layers": 3, "width": 8}


def data(rows=480, *, days=True):
    draw = torch.Generator().manual_seed(11)
    numbers = torch.randn(rows, 3, generator=draw)
    labels = (numbers[:, 0] + 0.5 * torch.randn(rows, generator=draw) > 0.9).float()
    codes = torch.randint(6, (rows, 2), generator=draw, dtype=torch.int32)
    of = torch.arange(rows) // 48 if days else None
    made = Rows((codes, numbers), (), labels, of)
    return Data("made-up", made, made[:160], Table((6, 6), 3))


def shrink(patch):
    """Every recipe with a network and batches that train in no time."""
    for name, recipe in RECIPES.items():
        small = replace(recipe, sizes=TINY, small=(32, 1), stops=tuple(stop // 50 for stop in recipe.stops[::3]))
        patch.setitem(RECIPES, name, small)


@pytest.fixture
def tiny(monkeypatch):
    shrink(monkeypatch)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A figure whose recipe is a sweep: what was made of it, what was told, and the sweep's file."""
    out, told = tmp_path_factory.mktemp("swept"), []
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        (made,) = make(["000-figure-2"], Asked(data()), out, progress=lambda *what: told.append(what[0]))
    return made, told, out / "recipes" / "first-version" / "results.parquet"


def test_the_toy_example_is_that_of_the_paper():
    rows = balanced.toy(rows=2000, updates=1)
    assert rows["label"].mean() == 0.5
    below = pl.col("x") < 1
    among = rows.filter(below & (pl.col("label") == 0)).height / 1000
    assert among == pytest.approx(0.1, abs=0.03)
    assert set(rows.filter(~below)["label"]) == {0}
    gap = (pl.col("probability") - pl.col("label")).abs()
    best = rows.with_columns(probability=pl.when(below).then(10 / 11).otherwise(0)).with_columns(norm=gap)
    figures = balanced.figures_of(best)
    assert figures["positive"] == pytest.approx(1 / 11), "of every positive row, at best"
    assert figures["negative"] == 0
    assert figures["norm"] == pytest.approx(1 - among), "the norm attack needs no imbalance"
    fitted = read()["claims"]["balanced-toy"]["judged"][0]["numbers"]
    assert fitted["positive"] == pytest.approx(1 / 11, abs=0.02)


def test_figures_of_the_report_on_embeddings_are_of_production_data_but_for_its_table():
    of = {name: figure.data for name, figure in FIGURES.items() if name.startswith("001-")}
    assert of.pop("001-table-2") == "fashion"
    assert set(of.values()) == {"production"}


def test_what_is_asked_for_is_known_by_its_rows():
    asked = data()
    codes, numbers = asked.train.features
    swapped = replace(asked, train=replace(asked.train, features=(codes, numbers[:, [1, 0, 2]])))
    assert Asked(swapped).as_dict() != Asked(asked).as_dict() == Asked(replace(asked)).as_dict()


# --- recipes ---------------------------------------------------------------------------------------------------------


def test_the_papers_set_ups_are_those_of_the_papers():
    at_paper = Asked(replace(data(), name="criteo"), "paper")
    criteo, first = RECIPES["trade-offs"], RECIPES["first-version"]
    assert criteo.visits(at_paper) == 5
    assert (first.sizes, first.batch_size, first.visits(at_paper)) == ({"cut": 4, "layers": 4}, 65_536, 30)
    network = criteo.network(at_paper.data)
    assert (network.cut, network.layers, network.width, network.embedding) == (3, 6, 128, 4)
    for name in ("isic", "ham10000", "generated:isic"):
        assert RECIPES["trade-offs"].visits(Asked(replace(data(), name=name), "paper")) == 1000
    eight = RECIPES["layers"]
    assert eight.network(at_paper.data).cut == 8
    assert eight.layers(at_paper.data) == ("cut", *(f"layer{n}" for n in range(1, 8)))
    skin = replace(data(), inputs=Pictures(3, 84), name="isic")
    assert eight.layers(skin) == ("cut", "layer1", "layer2", "layer3", "layer4"), "ReLU outputs, and the cut's pool"
    assert Setting("marvell", "detection_error", 0.4, (("search", "papers"),)) in first.settings(at_paper)
    assert Setting("iso", "t", 25.0) in first.settings(at_paper)


@pytest.mark.parametrize(
    ("name", "marvell", "iso"),
    [("criteo", 24, 22), ("generated:criteo", 24, 22), ("flights", 24, 22), ("isic", 33, 32)],
)
def test_at_the_papers_scale_every_strength_of_the_authors_is_trained(name, marvell, iso):
    table = pl.read_csv(files("papers").joinpath("paper_tradeoff.csv").read_bytes())
    theirs = table.filter(pl.col("data") == ("isic" if name == "isic" else "criteo"))
    settings = RECIPES["trade-offs"].settings(Asked(replace(data(), name=name), "paper"))
    for protection, count, power in (("marvell", marvell, 1), ("iso", iso, 2)):
        wanted = [value**power for value in theirs.filter(protection=protection)["strength"].sort()]
        assert [one.strength for one in settings if one.protection == protection] == pytest.approx(wanted)
        assert len(wanted) == count


def test_sum_kl_and_l_are_searched_as_in_the_papers_and_s_is_not():
    for name, recipe in RECIPES.items():
        for one in recipe.settings(Asked(data(), "paper")):
            if one.protection == "marvell":
                assert ("search" in one.options) == (one.knob != "scale"), name
    assert label_of("marvell", "sum_kl", 0.1, others_of('{"search": "papers", "sum_kl": 0.1}', "sum_kl")) == (
        "marvell sumKL=0.1"
    )


def test_pictures_get_the_convolutional_network_as_deep_as_they_allow():
    rows = Rows((torch.zeros(64, 1, 28, 28, dtype=torch.uint8),), (), torch.zeros(64))
    small, large = (replace(data(), train=rows, inputs=Pictures(1, size)) for size in (28, 84))
    assert (RECIPES["layers"].network(small).cut, RECIPES["layers"].network(small).layers) == (2, 4)
    assert (RECIPES["layers"].network(large).cut, RECIPES["layers"].network(large).layers) == (4, 6)


def test_every_setting_of_every_recipe_can_be_built_and_none_stands_twice():
    for recipe in RECIPES.values():
        for scale in ("small", "paper"):
            settings = recipe.settings(Asked(data(), scale, seeds=2))
            assert len(set(settings)) == len(settings)
            for one in settings:
                one.build()


def test_a_training_is_done_once_and_never_mixed_with_another(tiny, tmp_path):
    asked = Asked(data())
    first = results(RECIPES["labels"], asked, tmp_path)
    told = []
    again = results(RECIPES["labels"], asked, tmp_path, lambda *what: told.append(what))
    assert again.equals(first)
    assert not told
    with pytest.raises(UsageError, match="epochs = None, but 3 is asked for"):
        results(RECIPES["labels"], replace(asked, epochs=3), tmp_path)


def test_a_figure_of_a_sweep_tells_what_is_trained_and_writes_its_numbers(swept):
    made, told, file = swept
    assert any("first-version" in what for what in told)
    assert made.picture.exists()
    assert "norm@layer1" in pl.read_csv(made.numbers).columns
    assert file.exists()


def test_from_draws_what_the_sweep_has_and_says_what_it_lacks(swept, tmp_path):
    _, _, file = swept
    made = {one.name: one for one in make_from(["all"], file, tmp_path)}
    assert made["000-figure-2"].picture is not None
    assert "leave --from out" in made["004-table-1"].skipped
    assert "cosine@cut" in made["004-figure-4"].skipped
    with pytest.raises(DataError, match="004-table-1"):
        make_from(["004-table-1"], file, tmp_path)


# --- what is not a sweep ---------------------------------------------------------------------------------------------


def test_figures_that_train_in_their_own_way_are_drawn(tiny, tmp_path):
    names = ["004-figure-2", "002-labelling", "002-effectiveness", "003-figure-4", "004-table-1", "002-efficiency"]
    made = make(names, Asked(data()), tmp_path)
    assert [one.name for one in made] == names
    assert all(one.picture.read_bytes().startswith(b"\x89PNG") for one in made)
    daily = pl.read_csv(tmp_path / "003-figure-4.csv")
    assert daily["seeds"].unique().to_list() == [3]
    assert daily.filter(pl.col("day") > 0)["hint band"].min() >= 0
    assert daily.filter(pl.col("day") == 0)["test_auc"].null_count() == 6
    page = (tmp_path / "summary.md").read_text()
    assert all(f"]({name}.png)" in page for name in names)


def test_all_skips_what_the_data_cannot_give_and_a_name_alone_is_an_error(tiny, tmp_path):
    asked = Asked(data(days=False))
    with pytest.raises(DataError, match="has no days"):
        make(["003-figure-4"], asked, tmp_path)
    with pytest.raises(DataError, match="fashion, flights, adult"):
        make(["001-table-2"], asked, tmp_path)


def test_observations_see_the_classes_part():
    found = observe(data().train, network_for(data().inputs, **TINY), steps=(4, 40), batch_size=64, learning_rate=0.02)
    assert found["step"].unique().sort().to_list() == [4, 40]
    mass = (
        found.filter(pl.col("quantity") == "cosine")
        .with_columns(mass=pl.col("density") * (pl.col("right") - pl.col("left")))
        .group_by("step", "label")
        .agg(pl.col("mass").sum())
    )
    assert mass["mass"].to_list() == pytest.approx([1.0] * 4)
    late = found.filter(pl.col("step") == 40)
    assert late["norm"][0] > 0.7  # positives are the smaller class: their gaps are larger
    assert late["cosine"][0] > 0.95


def test_made_figures_have_a_json_form(tiny, tmp_path):
    made = make(["002-efficiency"], Asked(data()), tmp_path)
    told = json.loads(json.dumps([one.as_dict() for one in made]))
    assert told[0]["figure"] == "002-efficiency"
    assert told[0]["picture"].endswith("002-efficiency.png")
    assert told[0]["skipped"] is None
    assert FIGURES["002-efficiency"].shows
