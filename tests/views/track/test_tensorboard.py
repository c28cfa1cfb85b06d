"""Files of events, read back as TensorBoard reads them."""

import sys
from contextlib import closing

import pytest

from tacit.errors import StorageError, UsageError
from tacit.views.track import Point, TensorBoard


def test_figures_and_words_are_read_back(tmp_path, shown):
    with closing(TensorBoard(tmp_path, run="mine")) as log:
        log.facts({"batch_size": 256, "a|b": "two\nlines"})
        log.points([Point("loss", 0, 0.75, 10.0), Point("leak/norm", 0, 0.5, 10.0)])
        log.points([Point("loss", 3, 0.25)])
        log.text("gate/decision", 3, "keep: it *holds*")
    scalars, texts, times = shown(tmp_path / "mine")
    assert scalars == {"loss": [(0, 0.75), (3, 0.25)], "leak/norm": [(0, 0.5)]}
    assert times["leak/norm"] == [10.0]
    assert times["loss"][1] > 1e9, "now, where no time is given"
    assert texts["gate/decision/text_summary"] == [(3, "keep: it *holds*")]
    assert "| batch_size | 256 |\n| a\\|b | two lines |" in texts["facts/text_summary"][0][1]


def test_a_run_goes_on_in_a_file_that_is_read_later(tmp_path, shown):
    for step in range(3):  # all of them within a second
        with closing(TensorBoard(tmp_path, run="mine")) as log:
            assert log.reached("loss") == step - 1
            log.points([Point("loss", step, float(step))])
            log.facts({"seed": 1})
    names = sorted(path.name for path in (tmp_path / "mine").glob("events*"))
    assert len(names) == 3
    scalars, texts, *_ = shown(tmp_path / "mine")
    assert scalars["loss"] == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert len(texts["facts/text_summary"]) == 1


def test_where_nothing_is_new_no_file_is_left(tmp_path):
    TensorBoard(tmp_path, run="mine").close()
    assert not list((tmp_path / "mine").glob("events*"))


@pytest.mark.parametrize(("cut", "reached"), [(1, 0), (5, 0), (20, 0), (70, -1)])
def test_an_event_that_was_cut_short_is_written_again(cut, reached, tmp_path, shown):
    with closing(TensorBoard(tmp_path, run="mine")) as log:
        log.points([Point("loss", 0, 0.5)])
        log.points([Point("loss", 1, 0.25)])
    (path,) = (tmp_path / "mine").glob("events*")
    path.write_bytes(path.read_bytes()[:-cut])
    with closing(TensorBoard(tmp_path, run="mine")) as log:
        assert log.reached("loss") == reached
        for step in range(reached + 1, 2):
            log.points([Point("loss", step, 0.5 - step / 4)])
    assert shown(tmp_path / "mine")[0]["loss"] == [(0, 0.5), (1, 0.25)]


def test_two_at_once_are_refused(tmp_path):
    log = TensorBoard(tmp_path, run="mine")
    with pytest.raises(StorageError, match="another process writes this run already: stop that one"):
        TensorBoard(tmp_path, run="mine")
    log.close()
    TensorBoard(tmp_path, run="mine").close()


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "logs").touch()
    with pytest.raises(StorageError, match="logs"):
        TensorBoard(tmp_path / "logs", run="mine")


def test_a_name_is_one_folder(tmp_path):
    TensorBoard(tmp_path, run="../up/side").close()
    assert [path.name for path in tmp_path.iterdir()] == ["..-up-side"]


def test_without_the_extra_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(UsageError, match=r"tensorboard is not installed .*: pip install -e '.\[tracking\]'"):
        TensorBoard(tmp_path, run="mine")


@pytest.mark.parametrize("hurt", [b"\xff" * 8, b"\0" * 7 + b"\x10"], ids=["beyond-all-numbers", "beyond-memory"])
def test_an_event_of_a_damaged_length_is_passed_over(hurt, tmp_path):
    with closing(TensorBoard(tmp_path, run="mine")) as log:
        log.points([Point("loss", 0, 0.5)])
    (path,) = (tmp_path / "mine").glob("events*")
    path.write_bytes(path.read_bytes() + hurt + b"\0" * 20)
    with closing(TensorBoard(tmp_path, run="mine")) as log:
        assert log.reached("loss") == 0


def test_an_event_that_is_none_is_passed_over(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "events.out.tfevents.0000000001").write_bytes((4).to_bytes(8, "little") + b"\xff" * 12)
    with closing(TensorBoard(tmp_path, run="mine")) as log:
        assert log.reached("loss") == -1
