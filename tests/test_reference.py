"""The reference is made from the code: every public name has a place, and nothing changes from run to run."""

import importlib
import re
import struct
from pathlib import Path

import pytest

import tacit

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module", name="scripts")
def _scripts():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        yield importlib.import_module("docs_api"), importlib.import_module("docs_protocol")


def test_every_public_name_has_a_place(scripts):
    api, _ = scripts
    assert api.listed() == set(tacit.__all__)


def test_every_argument_of_simulate_is_told(scripts):
    api, _ = scripts
    parts = api.described("tacit.simulate")
    for argument, kind in (("bottom", "nn.Module"), ("epochs", "int = 1"), ("loss", "str = 'binary'")):
        assert any(f"| `{argument}` | `{kind}` | " in part for part in parts)
        assert f" {argument}," in parts[1]


def test_protections_and_metrics_are_told_in_a_line_and_classes_without_their_constructor(scripts):
    api, _ = scripts
    page = api.api()
    assert "| `tacit.matched` | One noise for both classes" in page
    assert "### `tacit.matched`" not in page
    assert "| `view: View` |" in page
    assert "Transcript(" not in page


def test_no_page_holds_what_changes_from_run_to_run(scripts):
    api, _ = scripts
    page = api.api()
    assert not re.search(r"0x[0-9a-f]{6,}|<function|<object|>>>", page)


def test_a_docstring_is_read_part_by_part(scripts):
    api, _ = scripts

    def example(one: int, *, two: str = "x") -> float:
        """What it is for.

        Args:
            one: the first,
                in two lines.
            two: the second.

        Returns:
            A number.

        More of it.

        >>> example(1)
        """

    text = api.Text.of(example)
    assert text.words == "What it is for.\n\nMore of it."
    assert text.named == {
        "Args": {"one": "the first, in two lines.", "two": "the second."},
        "Returns": {"": "A number."},
    }
    assert api.signature("example", example) == "example(one: int, *, two: str = 'x') -> float"


def test_the_tables_of_the_protocol_are_in_its_page(scripts):
    _, protocol = scripts
    page = (ROOT / "docs" / "ref-protocol.md").read_text()
    made = protocol.tables()
    assert set(re.findall(r"<!-- table: (\w+) -->", page)) == set(made)
    assert all(table in page for table in made.values())


def test_a_layout_with_another_field_is_noticed(scripts):
    _, protocol = scripts
    with pytest.raises(ValueError, match="other fields"):
        list(protocol._spans(struct.Struct("<4sBQ"), ("magic", "kind")))
