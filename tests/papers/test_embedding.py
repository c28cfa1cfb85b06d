"""The report on embeddings: settings, records, pictures, and small runs from end to end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from papers import embedding
from papers.embedding import drawing, judging, problems, settings, training
from papers.embedding.judging import noise_by_batch_size
from papers.embedding.records import Reading, Records
from tacit.errors import StorageError, UsageError
from tacit.lab.data import fashion
from tacit.split.protect.gradient.none import none
from tacit.split.simulate import simulate
from tests.lab.data.official import save_fashion

ROOT = Path(__file__).parents[2]
NOISE = {"noise": "uniform", "width": 0.5}
POINTS = settings.points(NOISE)


@pytest.fixture(scope="module", autouse=True)
def _short_attacks():
    """How well attackers read is shown where they are tested; here a tenth of their updates is enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "_PASSES", 15)
        patch.setattr(judging, "_ATTRIBUTE_UPDATES", 80)
        yield


def quiet(*_):
    pass


# --- settings --------------------------------------------------------------------------------------------------------


def test_every_figure_draws_points_that_are_there():
    for figure, names in settings.FIGURES.items():
        assert set(names) <= set(POINTS), figure
    assert set(settings.PICTURES) <= set(POINTS)
    assert set(POINTS) == {name for names in settings.FIGURES.values() for name in names}, "nothing is trained in vain"
    assert tuple(settings.THEIRS) == settings.FIGURES["table-2"][:4]


def test_the_settings_are_those_of_the_report():
    def options(name):
        return [dict(part) for _, part in POINTS[name].parts]

    assert options("logdcor-0.15") == [{"weight": 0.15, "log": True}]
    assert options("dcor-0.01") == [{"weight": 0.01, "log": False}]
    assert options("noise-uniform-0.025") == [{"weight": 0.025, "noise": "uniform", "width": 2.0}]
    assert [part["weight"] for part in options("logdcor-0.01+noise-0.001")] == [0.01, 0.001]
    assert [options(f"gaussian-{std:g}")[0]["std"] for std in settings.STDS] == [1.5, 5, 12.5, 15, 17.5, 25]
    assert options("noise-1") == [{"weight": 1.0, **NOISE}]


def test_figures_are_chosen_by_name_in_the_reports_order():
    assert settings.chosen(["figure-3", "table-2"]) == ("table-2", "figure-3")
    assert settings.chosen(None) == tuple(settings.FIGURES)
    with pytest.raises(UsageError, match=r"no 'figure-9'.*figure-8"):
        settings.chosen(["figure-9"])


# --- problems --------------------------------------------------------------------------------------------------------


def test_a_table_is_judged_by_columns_that_training_does_not_change():
    found = problems.problem("flights", rows=3000)
    codes, numbers = found.test.features
    assert found.truth.shape[0] == len(found.test.labels)
    categories = found.truth.shape[1] - numbers.shape[1]
    assert torch.equal(found.truth[:, :categories].sum(1), torch.full((len(codes),), float(codes.shape[1])))
    assert torch.equal(found.truth[:, categories:], numbers)
    name, private = found.attribute
    assert name == "month"
    assert 2 < len(private.unique()) <= 13
    bottom, top = found.models(torch.Generator().manual_seed(0))
    assert bottom(codes[:3], numbers[:3]).shape == (3, 64)
    assert top(bottom(codes[:3], numbers[:3]), *(x[:3] for x in found.test.own)).shape == (3,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "nothing"}, "no data set 'nothing'"),
        ({"name": "adult"}, "pass --folder"),
        ({"name": "flights", "path": "x"}, "leave --folder out"),
    ],
)
def test_a_problem_that_is_none(options, words):
    with pytest.raises(UsageError, match=words):
        problems.problem(**options)


def test_pictures_need_no_polars(tmp_path):
    save_fashion(fashion.generated(60, 0), tmp_path)
    code = (
        "import sys; sys.modules['polars'] = None\n"
        "from pathlib import Path\n"
        "from papers.embedding.problems import problem\n"
        f"assert len(problem('fashion', path=Path({str(tmp_path)!r})).train.labels) == 60\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


# --- training --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return problems.pictures(fashion.generated(256, 0))


def test_the_attacker_beside_the_training_changes_nothing(small):
    trained = training.train(POINTS["none"], small, epochs=1, seed=3, progress=quiet)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        bottom, top = small.models(torch.Generator().manual_seed(3))
        for _ in range(2):
            small.reconstructor(784, 784)  # as many first weights are drawn
        simulate(
            bottom=bottom, top=top, features=small.train.features, labels=small.train.labels, protect=none(),
            loss="softmax", optimizer=small.optimizer, epochs=1, batch_size=200, seed=3,
        )  # fmt: skip
    assert torch.equal(trained.model.bottom.weight, bottom.weight)
    assert not torch.equal(trained.untrained.weight, bottom.weight)
    assert trained.in_training is None


def test_training_depends_on_the_seed_alone(small):
    point = POINTS["adversarial-1+noise-1"]
    torch.manual_seed(5)
    first = training.train(point, small, epochs=1, seed=0, progress=quiet)
    state = torch.get_rng_state()
    again = training.train(point, small, epochs=1, seed=0, progress=quiet)
    assert torch.equal(torch.get_rng_state(), state), "the caller's randomness is left alone"
    other = training.train(point, small, epochs=1, seed=1, progress=quiet)
    assert torch.equal(first.model.bottom.weight, again.model.bottom.weight)
    assert torch.equal(first.beside[0].weight, again.beside[0].weight)
    assert not torch.equal(first.model.bottom.weight, other.model.bottom.weight)
    assert first.in_training is not None
    assert not torch.equal(first.in_training[0].weight, first.beside[0].weight)


def test_the_attacker_beside_the_training_learns(small):
    shown = []
    trained = training.train(POINTS["none"], small, epochs=60, seed=0, progress=lambda *done: shown.append(done))
    x = training.hidden(trained.model.bottom, small.test.features)
    with torch.no_grad():
        loss = float((trained.beside(trained.model.embed(small.test.features)) - x).square().sum(1).mean())
    assert loss < 0.8 * float((x - x.mean(0)).square().sum(1).mean()), "pictures can be reconstructed"
    assert shown[-1] == (60, 60)


def test_noise_has_less_distance_correlation_in_larger_batches(small):
    found = noise_by_batch_size(small.truth, 64, seed=0)
    sizes = [int(size) for size in found["plain"]]
    assert sizes == [32]
    assert found["plain"]["32"]["value"] > 0.5 > abs(found["unbiased"]["32"]["value"])


# --- records ---------------------------------------------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written(tmp_path):
    records = Records(tmp_path, {"data": "fashion", "epochs": 1})
    assert records.read("none") is None
    written = records.write("none", {"value": 1.5})
    assert records.read("none") == written
    assert written["settings"]["epochs"] == 1
    assert [path.name for path in (tmp_path / "records").iterdir()] == ["none.json"]


def test_a_record_of_other_settings_is_refused(tmp_path):
    Records(tmp_path, {"epochs": 1}).write("none", {})
    with pytest.raises(UsageError, match="made with epochs = 1, and now it is 2"):
        Records(tmp_path, {"epochs": 2}).read("none")


def test_a_damaged_record_says_what_to_do(tmp_path):
    records = Records(tmp_path, {})
    records.write("none", {})
    (tmp_path / "records" / "none.json").write_text('{"name":')
    with pytest.raises(StorageError, match="delete it"):
        records.read("none")
    (tmp_path / "records" / "none.json").write_text("[]")
    with pytest.raises(UsageError, match="made with format = None"):
        records.read("none")


# --- pictures --------------------------------------------------------------------------------------------------------


def around(value):
    return {"value": value, "low": value - 0.01, "high": value + 0.01}


def reading(name, *, dcor=0.5, loss=10.0, worth=0.8, entropy=0.5, error=0.4, untrained=0.9, size=1.0):
    sizes = (32, 512)
    return Reading(
        {
            "label": POINTS[name].label,
            "settings": {"data": "fashion"},
            "utility": {"name": "accuracy", **around(worth), "train_loss": 0.3, "test_loss": entropy},
            "dcor": {
                "by_batch_size": {str(n): around(dcor + 1 / n) for n in sizes},
                "unbiased": {str(n): around(dcor) for n in sizes},
                "untrained": {"512": around(untrained)},
                "data": {"512": around(dcor)},
            },
            "report": {"beside": loss, "in_training": None, "mean": 100.0, "embedding": size},
            "inputs": [
                {"attack": attack, "of": "data", "error": around(20.0), "relative": around(error + i / 10)}
                for i, attack in enumerate(("decoder", "few_pairs", "linear_decoder", "mirror"))
            ],
            "attribute": None,
            "labels": [],
            "pictures": None,
            "curve": {
                "epoch": [0, 1, 2],
                "dcor": [untrained, dcor, dcor],
                "loss": [50, 20, loss],
                "utility": [0.5, 0.7, worth],
            },
        },
        512,
    )


@pytest.mark.parametrize("figure", settings.FIGURES)
def test_every_figure_is_drawn(figure, tmp_path):
    found = {
        name: reading(name, dcor=0.5 - place / 40, worth=0.8 - place / 30, loss=10 + place)
        for place, name in enumerate(settings.FIGURES[figure])
    }
    noise = {"plain": {"32": around(0.5), "64": around(0.3)}, "unbiased": {"32": around(0.0), "64": around(0.0)}}
    path = drawing.draw(figure, found, noise, title="a test", out=tmp_path)
    assert path.name == f"{figure}.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 5000


# --- from end to end -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("fashion")
    save_fashion(fashion.generated(200, 0, test_rows=100), path)
    return path


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """An uninterrupted lab on generated pictures."""
    out = tmp_path_factory.mktemp("whole")
    found = embedding.run(data="fashion", path=folder, out=out, only=["table-2", "figure-2"], epochs=2, seed=1)
    return out, found


def test_a_lab_writes_records_figures_and_a_summary(whole):
    out, found = whole
    assert sorted(path.stem for path in (out / "records").iterdir()) == sorted(
        [*settings.FIGURES["table-2"], "figure-2"]
    )
    assert {name: path.name for name, path in found.drawn.items()} == {
        name: f"{name}.png" for name in ("table-2", "figure-2", "pictures")
    }
    assert all(path.is_file() for path in found.drawn.values())
    assert len(found.numbers.read_text().splitlines()) == 1 + len(settings.FIGURES["table-2"])
    text = found.summary.read_text()
    assert "| adversarial 1 + noise reg. 1 |" in text
    assert "256.8" in text, "the report's own number stands beside ours"
    assert "![" in text


def test_a_record_holds_every_measure(whole):
    record = json.loads((whole[0] / "records" / "adversarial-1.json").read_text())
    assert record["utility"]["low"] <= record["utility"]["value"] <= record["utility"]["high"]
    assert {"train_loss", "test_loss"} <= set(record["utility"])
    assert set(record["dcor"]) == {"by_batch_size", "unbiased", "untrained", "data"}
    assert record["report"]["beside"] > 0
    assert record["report"]["in_training"] > 0
    assert [one["attack"] for one in record["inputs"]] == ["decoder", "few_pairs", "linear_decoder", "mirror"]
    errors = {one["attack"]: one["relative"]["value"] for one in record["inputs"]}
    assert errors["decoder"] < errors["few_pairs"], "who knows more reads more"
    assert all(
        one["relative"]["low"] <= one["relative"]["value"] <= one["relative"]["high"] for one in record["inputs"]
    )
    assert record["attribute"] is None, "pictures have no private column"
    assert record["labels"] == [], "ten classes"
    assert len(record["pictures"]["decoder"]) == len(record["pictures"]["original"]) <= 10
    assert record["settings"]["seed"] == 1


def test_an_interrupted_lab_goes_on_and_says_the_same(whole, folder, tmp_path, monkeypatch):
    asked = {
        "data": "fashion",
        "path": folder,
        "out": tmp_path,
        "only": ["table-2", "figure-2"],
        "epochs": 2,
        "seed": 1,
    }

    def stop(what, done, total):
        if what.startswith("3 of 6"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embedding.run(**asked, progress=stop)
    left = {path.stem: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}
    assert set(left) == {"none", "adversarial-1", "figure-2"}

    trained = []
    real = embedding.train
    monkeypatch.setattr(embedding, "train", lambda point, *a, **k: trained.append(point.name) or real(point, *a, **k))
    found = embedding.run(**asked)
    assert trained == list(settings.FIGURES["table-2"][2:]), "what has a record is not trained again"
    assert {name: (tmp_path / "records" / f"{name}.json").stat().st_mtime_ns for name in left} == left
    assert found.summary.read_text() == whole[1].summary.read_text()
    assert (tmp_path / "table-2.png").read_bytes() == (whole[0] / "table-2.png").read_bytes()


def test_a_lab_with_other_settings_does_not_mix_its_records(whole, folder):
    with pytest.raises(UsageError, match="epochs = 2, and now it is 3"):
        embedding.run(data="fashion", path=folder, out=whole[0], only=["table-2"], epochs=3, seed=1)


def test_without_matplotlib_the_summary_is_still_written(whole, folder, tmp_path, monkeypatch):
    (tmp_path / "records").symlink_to(whole[0] / "records")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = embedding.run(data="fashion", path=folder, out=tmp_path, only=["table-2"], epochs=2, seed=1)
    assert found.drawn == {}
    assert "![" not in found.summary.read_text()
    assert not list(tmp_path.glob("*.png"))


def test_a_table_is_judged_on_the_private_column_and_on_labels(tmp_path):
    found = embedding.run(data="flights", out=tmp_path, only=["figure-5"], epochs=1, rows=1500, seed=0)
    record = found.found["none"].record
    assert record["attribute"]["column"] == "month"
    assert 0.3 < record["attribute"]["auc"]["value"] <= 1
    assert [one["attack"].partition("(")[0] for one in record["labels"]] == ["spectral", "model_completion"]
    assert all(one["baseline"] is not None for one in record["labels"])
    assert record["pictures"] is None
    assert set(found.drawn) == {"figure-5"}
    text = found.summary.read_text()
    assert "`month`" in text
    assert "model_completion" in text


def test_a_device_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UsageError, match="no CUDA device"):
        embedding.run(data="flights", out=tmp_path, device="cuda")
    with pytest.raises(UsageError, match="no device 'tpu'"):
        embedding.run(data="flights", out=tmp_path, device="tpu")
