"""The direction of imports is the architecture; this test reads it from the source."""

import ast
from pathlib import Path

import tacit

ROOT = Path(tacit.__file__).parent
COMPOSERS = {"cli", "lab", "__init__", "__main__"}
# What each part may import of ours besides itself. Composers may import anything.
EVERYTHING_BELOW = {
    "_version",
    "align",
    "arguments",
    "audit",
    "config",
    "contracts",
    "disk",
    "errors",
    "labels",
    "listening",
    "made_once",
    "plugins",
    "progress",
    "report",
    "same_bits",
    "wire",
}
ALLOWED = {
    "_version": set(),
    "contracts": set(),
    "errors": set(),
    "arguments": {"errors"},
    "progress": set(),
    "made_once": {"disk", "errors"},
    "same_bits": set(),
    "plugins": {"errors"},
    "disk": {"errors"},
    "listening": {"errors"},
    "config": {"errors", "plugins"},
    "wire": {"contracts", "disk", "errors"},
    "align": {"contracts", "disk", "errors", "progress", "wire"},
    "audit": {"arguments", "contracts", "errors", "plugins", "progress"},
    "labels": {"align", "audit", "config", "disk", "errors"},
    "report": {"disk", "errors", "listening", "progress"},
    "company": EVERYTHING_BELOW,
    "serve": EVERYTHING_BELOW | {"company"},
    "split": EVERYTHING_BELOW | {"company", "serve"},
    "exchange": EVERYTHING_BELOW | {"company", "serve"},
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


def test_protections_know_nothing_of_how_their_messages_travel_but_the_check_of_those_that_others_write():
    """It stores a state as a party does."""
    folder = ROOT / "split" / "protect"
    ours = {path: [name[2] for name in imported(path) if name[1:2] == ["split"]] for path in folder.rglob("*.py")}
    assert [path.name for path, names in ours.items() if set(names) - {"protect"}] == ["check.py"]
    assert not [path.name for path in ours if "wire" in imported_parts(path)]


def test_the_check_sees_a_forbidden_import(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("from tacit.audit.metrics import leak_auc\nimport tacit.wire.memory\n")
    assert imported_parts(bad) == {"audit", "wire"}
    bad.write_text("from tacit.align._columns import Moments\nfrom tacit.split._frames import read\n")
    assert private_imports(bad, "split") == ["tacit.align._columns.Moments"]


OWN = (
    "labels", "disk", "made_once", "align/cache", "align/tables", "align/ids", "align/sources", "align/sql",
    "align/encoder", "align/_columns", "align/directory", "company/check", "company/facts", "company/aligned",
    "company/departures", "company/shipments", "company/split_history", "split/gate", "split/gates", "split/record",
)  # fmt: skip
"""What reads a party's own table, its books, and what it keeps of them."""


def test_what_reads_a_partys_own_data_raises_nothing_that_a_peer_is_told():
    """Words of a `RefusedError` cross the wire, and after a `LinkError` a link is made again."""
    told = {"RefusedError", "LinkError", "GaveUpError"}
    for name in OWN:
        where = ROOT / name
        for path in where.glob("*.py") if where.is_dir() else [where.with_suffix(".py")]:
            names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
            assert not names & told, path
