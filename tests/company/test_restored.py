"""A party's folder that comes back from a backup: refused by what is counted apart from it, unless somebody answers."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from benchmarks._companies import align_rows
from tacit.cli import main
from tacit.company.agreed import agree
from tacit.company.aligned import facts_of
from tacit.company.audit import audit_run
from tacit.company.folder import Folder
from tacit.company.overrides import overrides
from tacit.errors import LinkError, StorageError, UsageError
from tacit.split.train import train


@pytest.fixture(name="state")
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(name="trained")
def _trained(companies, state, tmp_path):
    """The airline's folder after a training, and a backup of it from before."""
    for company in companies:
        own = np.arange(60) if company.config.role == "label" else 59 - np.arange(60)
        align_rows(company, own, id="00", seed=1, digest="00")
    path = companies[0].path
    shutil.copytree(path, tmp_path / "backup")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, [company.path for company in companies], timeout=100))
    assert len(list(state.iterdir())) == 4
    return path


def test_a_finished_run_is_looked_at_again_without_a_word(trained):
    train(trained)
    assert overrides(trained / "runs" / "small") == ()


def test_an_older_copy_is_refused_before_anybody_is_spoken_to(trained, tmp_path):
    shutil.rmtree(trained)
    shutil.copytree(tmp_path / "backup", trained)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"knows of 0 split runs, and something left in 1.*--after-restore"):
            train(trained, waiting=lambda *_: pytest.fail("it waits for a peer"))


def test_an_older_copy_without_the_run_begins_no_other_run_before_its_facts_are_back(trained, tmp_path):
    """What the run told would count nowhere: another run over the same rows is refused as well."""
    newest = tmp_path / "newest"
    trained.rename(newest)
    shutil.copytree(tmp_path / "backup", trained)
    contract = trained / "contract.toml"
    contract.write_text(contract.read_text().replace('run = "small"', 'run = "another"'))
    folder = Folder(trained)
    align_rows(folder, np.arange(60), id="01", seed=2, digest="01")
    refused = r"knows of 0 split runs, and something left in 1.*--after-restore"
    for _ in range(2):
        with pytest.raises(StorageError, match=refused):
            train(trained, waiting=lambda *_: pytest.fail("it waits for a peer"))
    assert not facts_of(folder).split_runs()
    shutil.copy(newest / "facts.sqlite", trained)
    with pytest.raises(LinkError, match="for now"):
        train(trained, waiting=_for_now)


def _for_now(*_):
    raise LinkError("for now")


def test_who_answers_for_going_on_is_on_record_and_in_the_report(trained, state):
    for path in state.glob("small-airline-*"):
        path.unlink()
    with pytest.raises(StorageError, match="gone or another one's"):
        train(trained)
    for by in (("", "why"), ("Ada", " ")):
        with pytest.raises(UsageError, match="a name and a reason"):
            train(trained, after_restore=by)
    train(trained, after_restore=("Ada", "a new machine"))
    train(trained)
    (said,) = overrides(trained / "runs" / "small")
    assert (said.who, said.reason) == ("Ada", "a new machine")
    assert said.what.startswith("training after a restore: it counts what was sent")
    assert audit_run(trained).overrides == (said,)
    log = [json.loads(line) for line in (trained / "runs" / "small" / "log.jsonl").read_text().splitlines()]
    assert [line["who"] for line in log if line["event"] == "restored"] == ["Ada"]


def test_the_command_line_takes_a_name_and_a_reason(trained, state, monkeypatch, capsys):
    for path in state.glob("small-airline-*"):
        path.unlink()
    agree(Folder(trained))
    words = ["tacit", "train", "--quiet", "--no-audit", "--folder", str(trained)]
    for more, code in ([], 2), (["--after-restore", "Ada"], 2), (["--after-restore", "Ada", "--reason", "moved"], 0):
        monkeypatch.setattr("sys.argv", [*words, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code, capsys.readouterr().err
    assert [one.who for one in overrides(trained / "runs" / "small")] == ["Ada"]


def test_what_left_is_not_counted_in_the_folder_itself_or_where_nobody_may_write(trained, monkeypatch):
    monkeypatch.setenv("TACIT_STATE", str(trained / "state"))
    with pytest.raises(UsageError, match="lies in the party's folder"):
        train(trained)
    monkeypatch.setenv("TACIT_STATE", "/proc/no/such")
    shutil.rmtree(trained / "runs" / "small" / "checkpoints")
    shutil.rmtree(trained / "runs" / "small" / "journal")
    (trained / "runs" / "small" / "begun").unlink()
    with pytest.raises(StorageError, match="TACIT_STATE"):
        train(trained)


def test_without_a_word_it_is_counted_in_the_users_state_folder(companies, monkeypatch, tmp_path):
    folder = Folder(companies[0].path)
    monkeypatch.delenv("TACIT_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    path = folder.tally_path(folder.contract, b"1")
    assert path.parent == tmp_path / "xdg" / "tacit"
    assert path != folder.tally_path(folder.contract, b"2")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert folder.tally_path(folder.contract, b"1").parent == tmp_path / "home" / ".local" / "state" / "tacit"
