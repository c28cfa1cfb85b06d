"""Where runs are."""

import os

from tacit.report.reading import find


def test_runs_of_all_parties_below_a_folder_newest_first(written, tmp_path):
    old, new = written("airline"), written("airport", run="weather")
    os.utime(old.path / "status.json", (1, 1))
    found = find([tmp_path])
    assert [one.name for one in found] == ["airport / weather", "airline / flights"]
    assert found[0].path == new.path


def test_a_place_keeps_its_id_whatever_root_it_is_found_under(written, tmp_path):
    one = written()
    roots = [tmp_path], [one.path], [one.path.parent], [tmp_path, one.path]
    assert len({tuple(place.id for place in find(root)) for root in roots}) == 1


def test_links_and_journals_are_not_walked_into(written, tmp_path):
    one = written()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link").symlink_to(one.path.parent)
    (one.path.parent.parent / "keys" / "x").mkdir(parents=True)
    (one.path.parent.parent / "keys" / "x" / "status.json").write_text("{}")
    assert [place.path for place in find([tmp_path])] == [one.path]


def test_nothing_is_found_where_nothing_is(tmp_path):
    assert find([tmp_path, tmp_path / "missing"]) == []


def test_a_run_may_have_the_name_of_something_else(written):
    one = written(run="ledger")
    assert [place.path for place in find([one.path.parent.parent])] == [one.path]
