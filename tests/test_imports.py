"""The direction of imports is the architecture; this test reads it from the source."""

import ast
from pathlib import Path

import tacit

ROOT = Path(tacit.__file__).parent
COMPOSERS = {"cli", "lab", "party", "__init__", "__main__"}
# What each part may import of ours besides itself. Composers may import anything.
ALLOWED = {
    "_version": set(),
    "contracts": set(),
    "errors": set(),
    "disk": {"errors"},
    "config": {"errors", "protect"},
    "plugins": {"errors"},
    "dependence": {"errors"},  # mathematics that a protection and a metric share
    "align": {"disk", "contracts", "errors", "wire"},
    "models": {"contracts", "errors"},
    "protect": {"contracts", "errors", "dependence", "plugins"},
    "wire": {"disk", "contracts", "errors"},
    "audit": {"contracts", "errors", "dependence", "plugins"},
    "cut": {"disk", "contracts", "errors", "align", "wire"},
    "ledger": {"disk", "contracts", "errors", "align", "protect", "wire"},
    "report": {"disk", "errors"},
    "testing": {"contracts", "errors", "protect", "wire"},  # the contract suite alone
    "runs": {"errors", "lab", "ledger", "party", "report"},  # reads what they write
    "track": {"disk", "errors", "runs"},
    "web": {"errors", "runs"},
    "one_shot": {
        "_version",
        "align",
        "audit",
        "config",
        "contracts",
        "dependence",
        "disk",
        "errors",
        "ledger",
        "models",
        "protect",
        "wire",
    },
}


def part_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports out in full, so that their direction can be read"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        parts |= {name.split(".")[1] if "." in name else "__init__" for name in names if name.split(".")[0] == "tacit"}
    return parts


def test_every_part_imports_only_what_it_may():
    wrong = []
    for path in ROOT.rglob("*.py"):
        part = part_of(path)
        if part in COMPOSERS:
            continue
        assert part in ALLOWED, f"{path.name}: say in this test what the part {part!r} may import"
        forbidden = imported_parts(path) - {part} - ALLOWED[part]
        wrong += [f"{path.relative_to(ROOT)} imports tacit.{other}" for other in forbidden]
    assert not wrong, wrong


def test_the_check_sees_a_forbidden_import(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("from tacit.audit.metrics import leak_auc\nimport tacit.wire.memory\n")
    assert imported_parts(bad) == {"audit", "wire"}
