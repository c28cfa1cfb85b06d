"""Skin lesions from made-up files in both official formats: what is chosen, how it is divided, what is refused."""

import re

import numpy as np
import pytest
import torch
from PIL import Image

from tacit.errors import DataError, UsageError
from tacit.lab.data import skin
from tacit.lab.data.rows import Pictures
from tests.lab.data.official import write_isic


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The same 90 lesions in both forms, never to be changed."""
    folder = tmp_path_factory.mktemp("skin")
    write_isic(folder / "siim", 90, 0)
    write_isic(folder / "ham", 90, 0, ham=True)
    return folder


@pytest.fixture
def own(tmp_path):
    """A few lesions that a test may damage."""
    write_isic(tmp_path / "own", 40, 1)
    return tmp_path / "own"


def named(folder, cache, **options):
    """A data set with the name of each of its pictures, found by their pixels."""
    data = skin.load(folder, cache=cache, **options)
    known = {}
    for path in sorted((folder / "jpeg/train").glob("*.jpg")):
        small = Image.open(path).convert("RGB").resize((84, 84), Image.Resampling.BILINEAR)
        known[np.asarray(small).transpose(2, 0, 1).tobytes()] = path.stem
    names = [[known[one.numpy().tobytes()] for one in rows.features[0]] for rows in (data.train, data.test)]
    return data, names


def table(folder):
    lines = (folder / "train.csv").read_text().splitlines()[1:]
    return {name: (patient, label) for name, patient, label in (line.split(",") for line in lines)}


def test_pictures_are_resized_bytes_with_their_labels(made, tmp_path):
    data, names = named(made / "siim", tmp_path)
    assert data.inputs == Pictures(3, 84)
    assert data.train.features[0].shape == (len(data.train), 3, 84, 84)
    assert data.train.features[0].dtype == torch.uint8
    about = table(made / "siim")
    for rows, part in zip((data.train, data.test), names, strict=True):
        assert rows.labels.tolist() == [float(about[name][1]) for name in part]
        assert rows.own == ()
    assert len(set(names[0]) | set(names[1])) == 90
    assert 0.05 < data.share < 0.2


def test_no_patient_is_on_both_sides(made, tmp_path):
    about = table(made / "siim")
    patients = {patient for patient, _ in about.values()}
    assert len(patients) < 70, "some have several pictures"
    for seed in range(4):
        _, names = named(made / "siim", tmp_path, seed=seed)
        train, test = ({about[name][0] for name in part} for part in names)
        assert not train & test
        assert train | test == patients


def test_both_forms_hold_the_same(made, tmp_path):
    siim, ham = (skin.load(made / form, cache=tmp_path) for form in ("siim", "ham"))
    assert torch.equal(siim.train.features[0], ham.train.features[0])
    assert torch.equal(siim.test.labels, ham.test.labels)
    assert (siim.name, ham.name) == ("isic", "ham10000")


def test_the_balance_keeps_all_positives_and_some_negatives(made, tmp_path, monkeypatch):
    positives = sum(label == "1" for _, label in table(made / "siim").values())
    for balance, used in ((50, 90), (2, 3 * positives)):
        monkeypatch.setattr(skin, "NEGATIVES", balance)
        data = skin.load(made / "siim", cache=tmp_path)
        labels = torch.cat([data.train.labels, data.test.labels])
        assert (len(labels), int(labels.sum())) == (used, positives)
    one, other = (skin.load(made / "siim", cache=tmp_path, seed=seed) for seed in (0, 1))
    assert not torch.equal(one.train.features[0][:5], other.train.features[0][:5])
    assert len(skin.load(made / "siim", cache=tmp_path, rows=30).train) < 30


def test_the_lesions_can_be_told_apart(made, tmp_path):
    data = skin.load(made / "siim", cache=tmp_path)
    brightness = data.train.features[0].float().mean((1, 2, 3))
    positive = data.train.labels.bool()
    better = (brightness[positive][:, None] < brightness[~positive][None, :]).float().mean()
    assert float(better) > 0.8


def test_a_large_picture_is_made_small_alike(own, tmp_path):
    path = sorted((own / "jpeg/train").glob("*.jpg"))[0]
    large = Image.open(path).resize((1200, 900), Image.Resampling.BICUBIC)
    before, names = named(own, tmp_path / "a")
    large.save(path, quality=95)
    data = skin.load(own, cache=tmp_path / "b")
    part = 0 if path.stem in names[0] else 1
    place = names[part].index(path.stem)
    old, new = ((one.train, one.test)[part].features[0][place].float() for one in (before, data))
    assert float((old - new).abs().mean()) < 4
    assert not torch.equal(old, new)


def test_other_sizes_and_grey_pictures(own, tmp_path, monkeypatch):
    monkeypatch.setattr(skin, "SIZE", 32)
    for path in (own / "jpeg/train").glob("*.jpg"):
        Image.open(path).convert("L").save(path)
    data = skin.load(own, cache=tmp_path)
    assert data.train.features[0].shape[1:] == (3, 32, 32)
    assert torch.equal(data.train.features[0][:, 0], data.train.features[0][:, 2])


def damaged(folder):
    """One picture cut off, one that is none, one that is gone."""
    cut, none, gone = sorted((folder / "jpeg/train").glob("*.jpg"))[3:6]
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    none.write_bytes(b"no picture at all")
    gone.unlink()
    return cut, none, gone


def test_bad_pictures_are_named(own, tmp_path):
    cut, none, gone = damaged(own)
    with pytest.raises(
        DataError, match=re.escape(f"{own / 'train.csv'}, line 7: image_name is {gone.stem!r}, a picture")
    ):
        skin.load(own, cache=tmp_path)
    lines = (own / "train.csv").read_text().splitlines()
    (own / "train.csv").write_text("\n".join(line for line in lines if gone.stem not in line))
    for _ in range(2):  # what could not be decoded is not taken for decoded
        with pytest.raises(DataError, match=f"picture ({cut.stem}|{none.stem}) in .* can't be decoded .*correct it"):
            skin.load(own, cache=tmp_path)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("ISIC_0000003,P_1,1", "line 42: image_name is 'ISIC_0000003', there already"),
        ("ISIC_9,,1", "line 42: patient_id is '', not an id"),
        ("ISIC_9,P_1,2", "line 42: target is '2', neither '1' nor '0'"),
        ("ISIC_9,P_1", "line 42: the line has 2 fields, not 3"),
        (",P_1,0", "line 42: image_name is '', not an id"),
    ],
)
def test_a_bad_row_of_the_table_is_named(own, tmp_path, row, words):
    with (own / "train.csv").open("a") as file:
        file.write(row + "\n")
    with pytest.raises(DataError, match=words):
        skin.load(own, cache=tmp_path)


def test_a_folder_without_a_table(tmp_path):
    with pytest.raises(DataError, match=r"holds neither train.csv nor HAM10000_metadata.csv.*SIIM-ISIC.*--folder"):
        skin.load(tmp_path, cache=tmp_path)


def test_wrong_options_are_refused(made, tmp_path):
    with pytest.raises(UsageError, match="rows is -1"):
        skin.load(made / "siim", cache=tmp_path, rows=-1)


def test_too_few_pictures_to_divide(own, tmp_path):
    with pytest.raises(DataError, match="1 pictures leave"):
        skin.load(own, cache=tmp_path, rows=1)
    with pytest.raises(UsageError, match="rows is 5"):
        skin.made_up(5, 0)
