"""README: short, two ways of equal rank, and a table whose figures are those of `docs/comparison.json`."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_it_is_short_and_names_both_ways_alike():
    assert len(README.splitlines()) <= 200
    two = README.partition("## Two ways to train")[2].partition("\n## ")[0]
    assert two.index("**Split learning**") < two.index("**One exchange**") < two.index("**Neither of them**")


def test_the_table_has_the_figures_that_were_measured():
    rows = json.loads((ROOT / "docs" / "comparison.json").read_text())["rows"]
    curve = [one for name in ("none", "marvell") for one in rows[name]["curve"]]
    table = README.partition("| gradients under |")[2].partition("\n\n")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| `")]
    assert len(lines) == len(curve)
    for line, one in zip(lines, curve, strict=True):
        name, *strength = one["setting"].values()
        assert line[0] == f"`{name}" + "".join(f"(scale={each:g})" for each in strength) + "`"
        worst, worth = one["worst"]["leak_auc"], one["test_auc"]["mean"]
        assert line[1:] == [f"{one['norm']:.2f}, {one['cosine']:.2f}", f"{worst:.2f}", f"{worth:.3f}"]


def test_the_attack_that_the_text_names_reads_every_label_at_every_strength():
    marvell = json.loads((ROOT / "docs" / "comparison.json").read_text())["rows"]["marvell"]
    for one in marvell["curve"]:
        assert one["worst"]["attack"] == "likelihood"
        assert one["worst"]["leak_auc"] > 0.995
