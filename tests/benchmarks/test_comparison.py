"""README's comparison in small: all kinds of rows are measured alike, and measured ones are kept."""

import json

import pytest

from benchmarks.comparison import page
from benchmarks.comparison.__main__ import OUT, main


@pytest.mark.slow
def test_rows_of_every_kind_are_measured_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    out, small = tmp_path / "comparison.json", ["--flights", "6000", "--seeds", "1"]
    before = {path: path.read_bytes() for path in (OUT, page.ROOT / "README.md")}
    assert main(["alone", "max_norm", "untrained", *small, "--out", str(out)]) == 0
    assert main(["exchange_3_bits", *small, "--out", str(out)]) == 0
    assert before == {path: path.read_bytes() for path in before}, "only where it is asked to"
    document = json.loads(out.read_text())
    assert document["common"]["training_rows"] + document["common"]["test_rows"] == 6000
    rows = document["rows"]
    assert list(rows) == ["alone", "max_norm", "untrained", "exchange_3_bits"]
    for name, row in rows.items():
        assert 0.4 < row["test_auc"]["mean"] < 1
        assert row["measured"]["command"] == f"python -m benchmarks.comparison {name} --flights 6000 --seeds 1"
    (point,) = rows["max_norm"]["curve"]
    assert point["worst"]["leak_auc"] > 0.5
    assert point["test_auc"]["mean"] == max(point["rates"].values())
    assert rows["untrained"]["bytes"]["labels"] == 0 < rows["max_norm"]["bytes"]["labels"]
    assert rows["exchange_3_bits"]["bound"]["leak_auc"] <= 0.6
    assert 0 < rows["exchange_3_bits"]["features"]["worst"] <= 1
    assert page.table(document).count("\n") == 1 + len(set(rows) - {"untrained"}), "prose tells of that one"
    assert "max_norm" in page.drawn(document)


def test_other_rows_than_those_of_the_file_are_refused(tmp_path, capsys):
    out = tmp_path / "comparison.json"
    out.write_text(json.dumps({"common": {"training_rows": 1}, "rows": {}}))
    with pytest.raises(SystemExit, match="2"):
        main(["alone", "--flights", "6000", "--out", str(out)])
    assert "choose another --out" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["alnoe"])
    assert "there is no row alnoe" in capsys.readouterr().err
