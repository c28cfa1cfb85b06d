"""The walk through one training in CONTRIBUTING.md names files that are there."""

import re
from pathlib import Path

import tacit

ROOT = Path(tacit.__file__).parent
PAGE = ROOT.parents[1] / "CONTRIBUTING.md"


def test_every_file_of_the_walk_is_there():
    walk = PAGE.read_text().partition("## Read this first")[2].partition("\n## ")[0]
    named = {name for name in re.findall(r"`([\w/]+(?:\.py|/))`", walk) if not name.endswith("NAME.py")}
    assert {"split/label_run.py", "split/feature_run.py", "exchange/label_party.py"} <= named
    missing = [name for name in named if not (ROOT / name).exists() and not (PAGE.parent / name).exists()]
    assert not missing, missing
