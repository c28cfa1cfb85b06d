"""By what a changed table is noticed."""

import os
import time

import pytest

from tacit.align import cache


@pytest.mark.parametrize("replaced", [False, True], ids=["written over", "replaced"])
def test_another_file_with_the_same_size_and_time_is_another_one(tmp_path, replaced):
    path = tmp_path / "table.csv"
    path.write_text("a\n1\n")
    before, times = cache.file_facts(path), path.stat()
    assert cache.file_facts(path) == before
    time.sleep(0.05)  # what a file system's clock may take to move on
    other = tmp_path / "other.csv" if replaced else path
    other.write_text("a\n2\n")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.rename(path)
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    assert cache.file_facts(path) != before
