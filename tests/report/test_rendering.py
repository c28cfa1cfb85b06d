"""The report as files: whole, readable again, and safe to open."""

import pytest

from tacit.errors import UsageError
from tacit.report.document import Report, Subject
from tacit.report.rendering import read, write


def test_what_is_written_can_be_read(tmp_path):
    report = Report(
        made="2026-03-01T12:00:00Z", subject=Subject(kind="files", side="features", run="g.npy"), verdict="no limit"
    )
    as_json, page = write(report, tmp_path / "new")
    assert read(as_json) == report
    assert "g.npy" in page.read_text()


def test_another_file_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(UsageError, match="made"):
        read(tmp_path / "x.json")
