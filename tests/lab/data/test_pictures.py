"""The cache of decoded pictures: it is whole or not there, and notices when a picture is another one."""

import os
import sys

import pytest
import torch

from tacit.errors import StorageError, UsageError
from tacit.lab.data import skin
from tests.lab.data.official import write_isic


@pytest.fixture
def folder(tmp_path):
    write_isic(tmp_path / "skin", 60, 0)
    return tmp_path / "skin"


def reports(folder, cache, **options):
    found = []
    data = skin.load(folder, cache=cache, progress=lambda done, total: found.append((done, total)), **options)
    return data, found


def test_progress_is_told_and_nothing_is_decoded_twice(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(skin, "CHUNK", 25)
    data, found = reports(folder, tmp_path)
    assert found == [(0, 60), (25, 60), (50, 60), (60, 60)]
    again, found = reports(folder, tmp_path)
    assert found == [(60, 60)]
    assert torch.equal(data.train.features[0], again.train.features[0])
    monkeypatch.setattr(skin, "SIZE", 20)
    _, found = reports(folder, tmp_path)
    assert found[0] == (0, 60), "another size is another cache"


def test_an_interruption_leaves_nothing_half(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(skin, "CHUNK", 10)

    def stop(done, total):
        if done == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        skin.load(folder, cache=tmp_path / "cache", progress=stop)
    data, found = reports(folder, tmp_path / "cache")
    assert found[0] == (0, 60)
    fresh, _ = reports(folder, tmp_path / "fresh")
    for one, other in ((data.train, fresh.train), (data.test, fresh.test)):
        assert torch.equal(one.features[0], other.features[0])
        assert torch.equal(one.labels, other.labels)


def test_a_changed_picture_is_decoded_anew(folder, tmp_path):
    reports(folder, tmp_path)
    one, other = sorted((folder / "jpeg/train").glob("*.jpg"))[:2]
    one.write_bytes(other.read_bytes())
    os.utime(one, ns=(1, 1))
    _, found = reports(folder, tmp_path)
    assert found[0] == (0, 60)


def test_pictures_are_mapped_and_the_cache_stays_as_it_is(folder, tmp_path):
    data = skin.load(folder, cache=tmp_path)
    (place,) = tmp_path.glob("pictures-*.bytes")
    before = place.read_bytes()
    data.train.features[0].fill_(0)
    assert place.read_bytes() == before
    again = skin.load(folder, cache=tmp_path)
    assert int(again.train.features[0].max()) > 0
    with open("/proc/self/maps") as maps:
        assert sum(str(place) in line for line in maps) >= 2


def test_without_a_cache_folder_it_lies_beside_the_pictures(folder):
    skin.load(folder)
    assert len(list((folder.parent / "skin.tacit").glob("pictures-*.bytes"))) == 1


def test_a_cache_that_cannot_be_written_is_named(folder, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=r"file can't be written"):
        skin.load(folder, cache=tmp_path / "file")


def test_without_pillow_it_says_what_to_install(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match=r"pip install 'tacit\[images\]'"):
        skin.load(folder, cache=tmp_path)
