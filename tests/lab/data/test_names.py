"""Data sets by name: every name leads to its files, to its look-alike, or to an error that says what to do."""

import subprocess
import sys

import pytest
import torch

from tacit.audit.metrics.leak_auc import auc
from tacit.errors import DataError, UsageError
from tacit.lab import data as lab_data
from tacit.lab.data.rows import Pictures
from tacit.lab.stack.network import network_for
from tests.lab.data.official import write_isic

FILED = [name for name, source in lab_data.SOURCES.items() if source.folder]
LARGE = ["avazu", "criteo"]
SMALL = ["adult", "credit", "fashion", "flights", "isic"]


def test_every_source_is_a_name():
    assert set(lab_data.names()) == set(lab_data.SOURCES)


def test_an_unknown_name_is_answered_with_those_there_are():
    with pytest.raises(UsageError, match=r"no data set 'adlut'; there are: adult, avazu, .*generated:NAME.*\.toml"):
        lab_data.load("adlut")
    with pytest.raises(UsageError, match="no data set 'nothing'"):
        lab_data.load("generated:nothing", rows=5)


@pytest.mark.parametrize("name", FILED)
def test_missing_files_are_named_with_where_to_get_them(name, tmp_path):
    source = lab_data.SOURCES[name]
    with pytest.raises(DataError) as caught:
        lab_data.load(name)
    for words in (source.files, source.where, source.licence, "--folder", f"generated:{name}"):
        assert words in str(caught.value)
    with pytest.raises(DataError, match="nowhere is not there: get "):
        lab_data.load(name, folder=tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"--folder|pass its folder|pass their folder"):
        lab_data.load(name, folder=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "flights", "rows": 0}, "rows is 0"),
        ({"name": "flights", "folder": "here"}, "flights is shipped with tacit: leave out the folder"),
        ({"name": "generated:adult"}, "say how many rows"),
        ({"name": "generated:adult", "rows": 5, "folder": "here"}, "reads no files"),
        ({"name": "own.toml", "folder": "here"}, "names its files itself"),
        ({"name": "generated:flights", "rows": 5, "folder": "here"}, "reads no files"),
    ],
)
def test_wrong_arguments_are_refused(arguments, words):
    with pytest.raises(UsageError, match=words):
        lab_data.load(arguments.pop("name"), **arguments)


@pytest.mark.parametrize("name", SMALL)
def test_a_look_alike_trains_and_is_seeded(name):
    data = lab_data.load(f"generated:{name}", rows=140, seed=3)
    assert data.name == f"generated:{name}"
    assert len(data.train) + len(data.test) == 140
    assert 0 < data.share < 0.6
    sizes = {"layers": 3, "cut": 2} if isinstance(data.inputs, Pictures) else {}
    bottom, top = network_for(data.inputs, **sizes).build(0)
    batch = data.train[:8]
    features = [x.float() / 255 if x.dtype == torch.uint8 else x for x in batch.features]
    assert top(bottom(*features), *batch.own).shape == (8,)
    again, other = (lab_data.load(f"generated:{name}", rows=140, seed=seed) for seed in (3, 4))
    assert all(map(torch.equal, data.train.features, again.train.features))
    assert not torch.equal(data.train.features[-1][:10], other.train.features[-1][:10])


@pytest.mark.parametrize("name", LARGE)
def test_a_large_look_alike_goes_by_its_name(name):
    data = lab_data.load(f"generated:{name}", rows=500, seed=1)
    assert data.name == f"generated:{name}"
    assert len(data.train) + len(data.test) == 500


def test_a_path_that_ends_with_toml_is_a_description(tmp_path):
    lines = [f"{row % 2},{row},{'ab'[row % 2]}" for row in range(200)]
    (tmp_path / "table.csv").write_text("\n".join(["clicked,age,site", *lines]) + "\n")
    (tmp_path / "mine.toml").write_text(
        'file = "table.csv"\nlabel = "clicked"\n[features]\ncategorical = ["site"]\nnumeric = ["age"]\n'
    )
    data = lab_data.load(tmp_path / "mine.toml", rows=100, cache=tmp_path / "cache")
    assert len(data.train) + len(data.test) == 100
    assert (len(data.inputs.cardinalities), data.inputs.numeric) == (1, 1)


@pytest.mark.parametrize(("ham", "name"), [(False, "isic"), (True, "ham10000")])
def test_both_names_of_skin_lesions_find_the_collection_that_is_there(tmp_path, ham, name):
    write_isic(tmp_path / "files", 40, 0, ham=ham)
    for asked in ("isic", "ham10000"):
        assert lab_data.load(asked, folder=tmp_path / "files", cache=tmp_path / "cache").name == name


def test_flights_know_their_days():
    data = lab_data.load("flights", rows=3000)
    assert len(data.train) + len(data.test) == 3000
    for rows in (data.train, data.test):
        assert rows.days is not None
        assert bool((rows.days.diff() >= 0).all())
        assert 0 <= int(rows.days[0]) < 20
        assert 345 < int(rows.days[-1]) <= 364
    month, day = (data.train.features[0][:, column] for column in (1, 2))  # codes follow the numbers, from 1 on
    lengths = torch.tensor([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30]).cumsum(0)
    assert torch.equal(data.train.days, lengths[month - 1] + day - 1)


def test_made_up_flights_have_the_shipped_columns():
    made, shipped = lab_data.load("generated:flights", rows=40_000, seed=2), lab_data.load("flights", rows=40_000)
    assert (made.inputs.numeric, made.inputs.own_numeric) == (shipped.inputs.numeric, shipped.inputs.own_numeric)
    assert made.inputs.cardinalities == shipped.inputs.cardinalities, "months, days, weekdays and hours are all there"
    assert made.share == pytest.approx(shipped.share, abs=0.04), "it drifts with the days"
    assert made.train.days.unique().tolist() == list(range(365))
    assert bool((made.train.days.diff() >= 0).all())


@pytest.mark.parametrize("name", ["adult", "credit", "flights"])
def test_the_label_of_a_look_alike_can_be_learnt(name):
    """A least squares fit to the numbers alone; the columns of both parties tell."""
    data = lab_data.load(f"generated:{name}", rows=20_000, seed=1)
    inputs, asked = (torch.cat([rows.features[1], rows.own[1]], 1).double() for rows in (data.train, data.test))
    weights = torch.linalg.lstsq(inputs - inputs.mean(0), data.train.labels.double()[:, None] - data.share).solution
    assert float(auc(((asked - inputs.mean(0)) @ weights).flatten(), data.test.labels)) > 0.55


def test_a_list_of_names_needs_neither_torch_nor_polars():
    code = "import sys, tacit.lab.data as d; d.names(); sys.exit(bool({'torch', 'polars', 'PIL'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0


def test_rows_and_pictures_of_fashion_need_no_polars(tmp_path):
    code = (
        "import sys\n"
        "sys.modules['polars'] = sys.modules['PIL'] = None\n"
        "from tacit.lab import data\n"
        "assert len(data.load('generated:fashion', rows=21).test) == 3\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=300, check=True)
