"""The direction of imports is the architecture; this test reads it from the source."""

import ast
from pathlib import Path

import tacit

ROOT = Path(tacit.__file__).parent
COMPOSERS = {"cli", "lab", "views", "__init__", "__main__"}
# What each part may import of ours besides itself. Composers may import anything.
ALLOWED = {
    "_version": set(),
    "contracts": set(),
    "errors": set(),
    "disk": {"errors"},
    "config": {"errors", "protect"},
    "plugins": {"errors"},
    "dependence": {"contracts", "errors"},  # mathematics that a protection and a metric share
    "align": {"disk", "contracts", "errors", "wire"},
    "models": {"contracts", "errors"},
    "protect": {"contracts", "errors", "dependence", "plugins", "wire"},  # wire: in check.py alone
    "wire": {"disk", "contracts", "errors"},
    "audit": {"contracts", "errors", "dependence", "plugins"},
    "cut": {"disk", "contracts", "errors", "align", "wire"},
    "one_shot": {
        "_version",
        "align",
        "audit",
        "config",
        "contracts",
        "dependence",
        "disk",
        "errors",
        "models",
        "protect",
        "wire",
    },
    "company": {
        "_version",
        "align",
        "audit",
        "config",
        "contracts",
        "cut",
        "disk",
        "errors",
        "models",
        "one_shot",
        "plugins",
        "protect",
        "views",  # it writes its report, and its doctor reads what runs say of themselves
        "wire",
    },
    "serve": {  # above a company: it uses what its runs leave
        "align",
        "company",
        "config",
        "contracts",
        "cut",
        "disk",
        "errors",
        "one_shot",
        "protect",
        "wire",
    },
}


def part_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


def imported(path: Path) -> list[list[str]]:
    """The names of ours that a file imports, each split at its dots."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports out in full, so that their direction can be read"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [parts for parts in (name.split(".") for name in names) if parts[0] == "tacit"]


def imported_parts(path: Path) -> set[str]:
    return {parts[1] if parts[1:] else "__init__" for parts in imported(path)}


def private_imports(path: Path, part: str) -> list[str]:
    """What a file of a part imports of another part's private modules, whose names begin with an underscore."""
    others = [parts for parts in imported(path) if parts[1:] and parts[1] not in {part, "_version"}]
    return [".".join(parts) for parts in others if any(name[0] == "_" and name[:2] != "__" for name in parts)]


def test_no_part_reaches_into_the_private_modules_of_another():
    found = {path.relative_to(ROOT): private_imports(path, part_of(path)) for path in ROOT.rglob("*.py")}
    wrong = {str(path): names for path, names in found.items() if names}
    assert not wrong, wrong


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


def test_no_protection_imports_the_wire_but_the_check_of_those_that_others_write():
    """It stores a state as a party does; what protects a gradient knows nothing of how that travels."""
    found = [path.name for path in (ROOT / "protect").rglob("*.py") if "wire" in imported_parts(path)]
    assert found == ["check.py"]


def test_the_check_sees_a_forbidden_import(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("from tacit.audit.metrics import leak_auc\nimport tacit.wire.memory\n")
    assert imported_parts(bad) == {"audit", "wire"}
    bad.write_text("from tacit.wire._frames import read\nfrom tacit.cut._tensors import finite\n")
    assert private_imports(bad, "cut") == ["tacit.wire._frames.read"]
