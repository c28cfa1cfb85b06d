"""Sweeps from end to end on small generated tables: rows, intervals, waves, interruption, refusal."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from tacit.errors import DataError, StorageError, UsageError
from tacit.lab import sweep
from tacit.lab.data import generated
from tacit.lab.stack.measuring import SAMPLED
from tacit.lab.sweeping import results
from tacit.lab.sweeping.recipe import Plan, digest_of, recipe_for
from tacit.lab.sweeping.running import in_waves
from tacit.lab.sweeping.settings import Setting
from tacit.lab.sweeping.wave import Wave, stretches

SETTINGS = (Setting("none"), Setting("iso", "t", 400.0), Setting("matched", "leak_auc", 0.55), Setting("none", seed=1))
CHEAP = ("norm", "cosine", "hint")
QUICK = {
    "attacks": CHEAP,
    "epochs": 2,
    "batch_size": 64,
    "network": {"width": 8, "layers": 4},
    "points": 6,
    "thorough": False,
}


@pytest.fixture(scope="module")
def data():
    return generated.table(720, (6, 9), 3, 0.35, 0)


@pytest.fixture(scope="module")
def thorough(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep")
    return sweep(data, settings=SETTINGS, out=out, **{**QUICK, "thorough": True})


# --- rows ------------------------------------------------------------------------------------------------------------


def test_one_file_with_a_row_for_every_stretch_and_the_whole(thorough):
    assert thorough.path.name == "results.parquet"
    assert [path.name for path in thorough.path.parent.iterdir()] == ["results.parquet"], "the waves are gone"
    again = results.read(thorough.path.parent)
    assert_frame_equal(again.table, thorough.table)
    assert again.metadata == json.loads(json.dumps(thorough.metadata))
    counts = thorough.table.group_by("replica", "part").len().sort("replica", "part")
    assert counts["len"].to_list() == [6, 1] * len(SETTINGS)
    assert set(thorough.table.columns) >= {*results.IDENTITY, *results.PLACE, *results.UTILITY, *results.WORST}


def test_rows_name_their_setting(thorough):
    whole = thorough.whole
    assert whole["protection"].to_list() == [one.protection for one in SETTINGS]
    assert whole["strength"].to_list() == [one.strength for one in SETTINGS]
    assert whole["seed"].to_list() == [one.seed for one in SETTINGS]
    assert json.loads(whole["options"][2]) == {"leak_auc": 0.55}


def test_the_whole_is_the_mean_of_its_batches(thorough, data):
    steps = len(data.train) // 64
    for number in range(len(SETTINGS)):
        mine = thorough.table.filter(pl.col("replica") == number)
        parts, whole = mine.filter(pl.col("part") == "stretch").sort("step"), mine.filter(pl.col("part") == "whole")
        ends = parts["step"].to_list()
        assert ends[-1] == whole["step"][0] == 2 * steps
        sizes = torch.tensor([b - a for a, b in pairwise([0, *ends])], dtype=torch.float64)
        mean = (parts["train_loss"].to_torch() * sizes).sum() / sizes.sum()
        assert float(mean) == pytest.approx(whole["train_loss"][0], rel=1e-9)
        assert parts["epoch"].to_list() == pytest.approx([end / steps for end in ends])


def test_each_batch_may_have_a_row_of_its_own(thorough, data):
    table = sweep(data, settings=SETTINGS, **QUICK, batches=True).table
    batches, others = (table.filter((pl.col("part") == "batch") == one) for one in (True, False))
    steps = 2 * (len(data.train) // 64)
    assert batches.group_by("replica").len()["len"].to_list() == [steps] * len(SETTINGS)
    assert set(thorough.table["part"]) == set(others["part"]) == {"stretch", "whole"}
    assert batches.filter(pl.col("protection") == "iso")["norm@cut"].min() < 0.5, "not folded"
    for name in ("norm@cut", "cosine@layer1", "train_loss"):
        mean = batches.group_by("replica").agg(pl.col(name).mean()).sort("replica")[name].to_list()
        whole = others.filter(pl.col("part") == "whole").sort("replica")[name].to_list()
        folded = mean if name == "train_loss" else [max(one, 1 - one) for one in mean]
        assert folded == pytest.approx(whole, rel=1e-6)


def test_the_test_rows_are_asked_at_the_end_of_every_epoch(thorough):
    parts = thorough.table.filter(pl.col("part") == "stretch")
    ends = parts.filter(pl.col("epoch") == pl.col("epoch").round())
    assert ends["test_auc"].null_count() == 0
    assert len(ends) == 2 * len(SETTINGS)
    assert parts["test_auc"].null_count() == len(parts) - len(ends)
    last = ends.filter(pl.col("epoch") == 2).sort("replica")
    assert last["test_auc"].to_list() == thorough.whole["test_auc"].to_list()


def test_every_attack_is_in_the_row_of_the_whole_with_its_interval(thorough):
    cheap = {f"{attack}@{layer}" for attack in (*CHEAP, *SAMPLED) for layer in ("cut", "layer1")}
    slow = {"spectral", "likelihood", "learned", "contextual", "accumulated(norm)", "accumulated(residual)"}
    slow |= {"accumulated(likelihood)", "accumulated(likelihood, spread)"}
    assert set(results.leaks_of(thorough.table.columns)) == cheap | {f"{name}@cut" for name in slow}
    for name in results.leaks_of(thorough.table.columns):
        value, low, high = (thorough.whole[column] for column in (name, f"{name} low", f"{name} high"))
        assert ((low >= 0.5) & (low <= value) & (value <= high) & (high <= 1)).all(), name
    assert thorough.table.filter(pl.col("part") == "stretch")["learned@cut"].null_count() == 6 * len(SETTINGS)


def test_the_worst_attack_is_the_one_that_may_reach_highest(thorough):
    for row in thorough.whole.iter_rows(named=True):
        highs = {name: row[f"{name} high"] for name in results.leaks_of(row)}
        assert row["worst high"] >= max(highs.values())
        if row["worst part"] == "whole":
            assert highs[row["worst attack"]] == row["worst high"]
            assert row["worst"] == row[row["worst attack"]]
    assert thorough.whole["worst part"][0] == "whole", "where nothing can reach higher, the whole is named"
    none, _, matched, _ = thorough.whole["worst"].to_list()
    assert none > 0.95
    assert matched < 0.75


def test_settings_decide_and_replicas_of_one_seed_share_their_batches(thorough):
    none, iso, matched, other = thorough.whole["power"].to_list()
    assert none == other == 0
    assert iso > 100
    assert matched > 1
    assert thorough.whole["untouched_rows"].to_list() == [64, 0, 0, 64]
    losses = thorough.whole["train_loss"].to_list()
    assert losses[0] != losses[3], "another seed is another training"


def test_a_single_visit_has_nothing_to_accumulate(data):
    found = sweep(data, settings=[Setting("none")], **{**QUICK, "thorough": True, "epochs": 1})
    assert not [name for name in found.table.columns if name.startswith("accumulated")]
    assert found.path is None


def test_an_attack_on_every_batch_is_not_run_again_at_the_end(data):
    options = {**QUICK, "epochs": 1, "thorough": True, "attacks": ("residual",), "layers": ("cut",)}
    found = sweep(data, settings=[Setting("none")], **options)
    assert found.whole["residual@cut q95"].null_count() == 0, "the one of all batches has a quantile"


@pytest.mark.parametrize(
    ("epochs", "each", "points"), [(1, 1, 50), (3, 7, 50), (5, 100, 50), (7, 10, 3), (50, 4, 50), (1000, 3, 50)]
)
def test_stretches_cover_a_training_and_end_with_it(epochs, each, points):
    ends = list(stretches(epochs, each, points))
    assert ends[-1] == epochs * each
    assert all(a < b for a, b in pairwise([0, *ends]))
    assert len(ends) <= points * 1.5
    if epochs <= points:
        assert {epoch * each for epoch in range(1, epochs + 1)} <= set(ends)


def test_the_worst_part_reaches_the_results(data, monkeypatch):
    recipe = recipe_for(data, Plan(device="cpu", layers=("cut",), **{**QUICK, "epochs": 4, "batch_size": 32}))
    wave = Wave(recipe, data, {0: Setting("iso", "t", 4000.0)})
    right = wave.stack.advance

    def leaky(plan):
        done, steps = wave.done, right(plan)
        where = slice(max(0, 16 - done), max(0, 32 - done))
        steps.auc["cosine", "cut"][where] = 0.02  # for a while, and with its sign turned
        return steps

    monkeypatch.setattr(wave.stack, "advance", leaky)
    *_, whole = wave.run()
    assert whole["worst attack"] == "cosine@cut"
    assert whole["worst part"] == "updates 17 to 32"
    assert whole["worst"] == pytest.approx(0.98)
    assert whole["cosine@cut"] < 0.75, "the column stays the mean"


def test_a_replica_that_runs_away_leaves_the_others_alone(data, monkeypatch):
    recipe = recipe_for(data, Plan(device="cpu", layers=("cut",), **{**QUICK, "epochs": 1}))
    wave = Wave(recipe, data, {5: SETTINGS[0], 7: SETTINGS[1]})
    right = wave.stack.logits

    def broken(rows):
        found = right(rows)
        found[1, 0] = torch.inf
        return found

    monkeypatch.setattr(wave.stack, "logits", broken)
    good, bad = (row for row in wave.run() if row["part"] == "whole")
    assert (good["replica"], bad["replica"]) == (5, 7)
    assert good["worst"] > 0.5
    assert good["notes"] is None
    assert bad["test_auc"] is None
    assert "worst" not in bad
    assert "ran away" in bad["notes"]


# --- waves and interruption ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 5, 64, 65])
@pytest.mark.parametrize("most", [1, 7, 64, 1000])
@pytest.mark.parametrize("least", [1, 2, 80])
def test_waves_are_nearly_equal_and_hold_everything_once(count, most, least):
    waves = in_waves({number * 3: number for number in range(count)}, most, least)
    assert [number for wave in waves for number in wave] == [number * 3 for number in range(count)]
    sizes = [len(wave) for wave in waves]
    assert max(sizes, default=0) <= most
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert len(waves) == min(count, max(-(-count // most), least))


def test_a_wave_for_which_memory_is_short_is_halved(data, monkeypatch):
    tried, whole = [], Wave.run

    def run(wave, progress):
        tried.append(list(wave.numbers))
        if len(wave.numbers) > 1:
            raise torch.OutOfMemoryError
        return whole(wave, progress)

    monkeypatch.setattr(Wave, "run", run)
    found = sweep(data, settings=SETTINGS[:3], **QUICK)
    assert tried == [[0, 1, 2], [0, 1], [0], [1], [2]]
    assert found.whole["replica"].to_list() == [0, 1, 2]


def test_waves_change_nothing_but_rounding(data):
    told = []
    one = sweep(data, settings=SETTINGS, **QUICK)
    two = sweep(data, settings=SETTINGS, together=2, progress=lambda *x: told.append(x), **QUICK)
    assert one.metadata["waves"] == [4]
    assert two.metadata["waves"] == [2, 2]
    assert_frame_equal(one.table.drop("seconds"), two.table.drop("seconds"), rel_tol=1e-3, abs_tol=1e-3)
    assert any(what.startswith("wave 2 of 2, 2 replicas: training") for what, _, _ in told)
    assert all(a[1] <= b[1] for a, b in pairwise(told))
    assert told[-1][1] == told[-1][2]


def test_an_interrupted_sweep_goes_on_with_what_is_missing(data, tmp_path):
    def interrupt(what, done, total):
        if what.startswith("wave 2"):
            raise KeyboardInterrupt

    options = {"settings": SETTINGS, "out": tmp_path, "together": 2, **QUICK}
    with pytest.raises(KeyboardInterrupt):
        sweep(data, progress=interrupt, **options)
    kept = list((tmp_path / "waves").iterdir())
    assert len(kept) == 1
    assert not (tmp_path / "results.parquet").exists()
    (tmp_path / "waves" / "half.part").write_bytes(b"what a kill in the middle of writing leaves")
    told = []
    found = sweep(data, progress=lambda what, *_: told.append(what), **options)
    assert found.metadata["waves"] == [2], "the first wave is not trained again"
    assert set(told) == {"2 replicas: beginning", "2 replicas: training"}
    whole = sweep(data, settings=SETTINGS, **QUICK)
    assert_frame_equal(whole.table.drop("seconds"), found.table.drop("seconds"), rel_tol=1e-3, abs_tol=1e-3)
    assert not (tmp_path / "waves").exists()


@pytest.mark.parametrize("cut", ["before", "halfway", "after"])
def test_the_last_file_survives_being_cut_short(data, tmp_path, monkeypatch, cut):
    options = {"settings": SETTINGS[:2], "out": tmp_path, **QUICK}
    right = shutil.rmtree

    def stop(path):
        if cut != "before":
            next(path.glob("*.parquet")).unlink()
        if cut == "after":
            right(path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tacit.lab.sweeping.running.shutil.rmtree", stop)
        with pytest.raises(KeyboardInterrupt):
            sweep(data, together=2, **options)
    assert not (tmp_path / "results.parquet").exists()
    told = []
    found = sweep(data, progress=lambda *x: told.append(x), **options)
    assert told == [], "nothing is trained again"
    assert [path.name for path in tmp_path.iterdir()] == ["results.parquet"]
    assert found.whole["replica"].to_list() == [0, 1]


def test_waves_that_cannot_be_removed_are_said(data, tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("tacit.lab.sweeping.running.shutil.rmtree", refuse)
        with pytest.raises(StorageError, match="can't be removed"):
            sweep(data, settings=SETTINGS[:1], out=tmp_path, **QUICK)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1, "the wave, and not the whole beside it"
    sweep(data, settings=SETTINGS[:1], out=tmp_path, **QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["results.parquet"]


def test_a_finished_sweep_is_not_done_again(thorough, data):
    told = []
    options = {**QUICK, "thorough": True, "progress": lambda *x: told.append(x)}
    again = sweep(data, settings=SETTINGS, out=thorough.path.parent, **options)
    assert_frame_equal(again.table, thorough.table)
    assert told == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": 3}, "epochs = 2, now it is 3"),
        ({"batch_size": 32}, "batch_size = 64, now it is 32"),
        ({"thorough": False}, "thorough = True, now it is False"),
        ({"settings": SETTINGS[:2]}, "other settings \\(4, now 2"),
        ({"settings": (replace(SETTINGS[0], seed=9), *SETTINGS[1:])}, r"first \['none', 0\] and now \['none', 9\]"),
    ],
)
def test_another_sweep_in_the_same_folder_is_refused_by_what_differs(thorough, data, change, words):
    options = {"settings": SETTINGS, "out": thorough.path.parent, **QUICK, "thorough": True, **change}
    with pytest.raises(UsageError, match=words):
        sweep(data, **options)


def test_another_draw_of_the_data_is_refused(thorough):
    other = generated.table(720, (6, 9), 3, 0.35, 1)
    with pytest.raises(UsageError, match="other rows of generated"):
        sweep(other, settings=SETTINGS, out=thorough.path.parent, **{**QUICK, "thorough": True})


def test_the_same_labels_with_other_inputs_are_refused(thorough, data):
    codes, numbers = data.train.features
    swapped = replace(data, train=replace(data.train, features=(codes, numbers[:, [1, 0, 2]])))
    with pytest.raises(UsageError, match="other rows of generated"):
        sweep(swapped, settings=SETTINGS, out=thorough.path.parent, **{**QUICK, "thorough": True})


def test_a_digest_sees_every_tensor(data, monkeypatch):
    own = replace(data.train, own=(data.train.labels[:, None],), days=torch.zeros(len(data.train), dtype=torch.int64))
    other = replace(own, own=(1 - data.train.labels[:, None],))
    made = [data, replace(data, train=own), replace(data, train=other)]
    made += [replace(data, train=replace(own, days=own.days + 1)), replace(data, test=data.test[:-1])]
    assert len({digest_of(one) for one in made}) == len(made)
    monkeypatch.setattr("tacit.lab.sweeping.recipe._HASHED", 1 << 10)
    monkeypatch.setattr("tacit.lab.sweeping.recipe._SPREAD", 7)
    assert digest_of(data) == digest_of(replace(data)) != digest_of(replace(data, train=data.train[1:]))


def test_files_that_are_no_results(tmp_path):
    with pytest.raises(UsageError, match=r"there is no .*results.parquet"):
        results.read(tmp_path)
    (tmp_path / "results.parquet").write_bytes(b"no parquet")
    with pytest.raises(StorageError, match="can't be read"):
        results.read(tmp_path)
    for said in ("[" * 99_999, "{"):
        pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "results.parquet", metadata={"tacit": said})
        with pytest.raises(StorageError, match="can't be read"):
            results.read(tmp_path)
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(UsageError, match=r"lacks replica, .*, notes, a recipe in the metadata; give"):
        results.read(tmp_path / "other.parquet")


def test_results_that_lack_something_say_what(thorough, tmp_path):
    path = tmp_path / "results.parquet"
    results.write(path, thorough.table.drop("worst part", "test_auc"), thorough.metadata)
    with pytest.raises(UsageError, match="lacks test_auc, worst part;"):
        results.read(path)
    results.write(path, thorough.table, {"data": "x"})
    with pytest.raises(UsageError, match="lacks a recipe in the metadata;"):
        results.read(path)


@pytest.mark.parametrize(
    ("train", "test", "words"),
    [
        (slice(0), None, "training part .* no row"),
        (None, 0, "test part .* label 0"),
        (1, None, "training part .* label 1"),
    ],
)
def test_a_part_that_lacks_a_class_is_said_before_training(data, train, test, words):
    def some(rows, which):
        return rows if which is None else rows[which] if isinstance(which, slice) else rows[rows.labels == which]

    lacking = replace(data, train=some(data.train, train), test=some(data.test, test))
    with pytest.raises(DataError, match=words):
        sweep(lacking, settings=SETTINGS[:1], **QUICK)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"settings": (SETTINGS[0], SETTINGS[0])}, "twice"),
        ({"device": "tpu"}, "no device 'tpu'"),
        ({"attacks": ("learned",)}, "learned"),
        ({"layers": ("layer9",)}, "layer9"),
    ],
)
def test_a_sweep_that_is_none(data, options, words):
    with pytest.raises(UsageError, match=words):
        sweep(data, **{"settings": SETTINGS[:1], **QUICK, **options})


def test_a_wave_trains_where_there_is_neither_polars_nor_ray():
    code = (
        "import sys\n"
        "for name in ('polars', 'pydantic', 'cryptography', 'PIL', 'ray'): sys.modules[name] = None\n"
        "from tacit.lab.data import generated\n"
        "from tacit.lab.sweeping import cluster, running\n"
        "from tacit.lab.sweeping.settings import grid\n"
        "from tacit.lab.sweeping.recipe import Plan, recipe_for\n"
        "from tacit.lab.sweeping.wave import Wave\n"
        "data = generated.table(200, (5,), 2, 0.4, 0)\n"
        "plan = Plan(epochs=1, attacks=('norm',), layers=('cut',), points=1, network={'width': 4}, device='cpu')\n"
        "recipe = recipe_for(data, plan)\n"
        "rows = Wave(recipe, data, dict(enumerate(grid(['iso'], 1)))).run()\n"
        "assert [row['part'] for row in rows] == ['stretch', 'whole'] * 2\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
