"""Tables fit the terminal and lose no figure, also on a narrow one."""

import io
import re

import pytest
from rich.console import Console

from tacit.cli._tables import narrow, print_table


def printed(width, *arguments, **options):
    screen = Console(file=io.StringIO(), width=width, highlight=False)
    print_table(*arguments, on=screen, **options)
    return screen.file.getvalue()


HEAD = ["attack", *(f"matched\nleak_auc=0.{one}" for one in range(1, 8))]
ROWS = [
    ["accumulated(likelihood)", *(f"[red]0.{one}23[/red]" for one in range(1, 8))],
    None,
    ["[bold]worst attack", *(f"0.{one}99" for one in range(1, 8))],
]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_figure_is_lost(width):
    said = printed(width, "A title that is longer than a narrow screen is wide, by some words", HEAD, ROWS)
    assert max(map(len, said.splitlines())) <= width
    assert "…" not in said
    for one in range(1, 8):
        assert f"0.{one}23" in said
        assert f"0.{one}99" in said
        assert f"leak_auc=0.{one}" in said


def test_parts_begin_with_the_first_column():
    whole, narrowed = printed(200, None, HEAD, ROWS), printed(60, None, HEAD, ROWS)
    assert whole.count("worst attack") == 1
    assert 2 <= narrowed.count("worst attack") <= 4
    assert len(re.findall("attack +leak_auc", narrowed)) == narrowed.count("worst attack")


def test_words_are_broken_and_figures_are_not():
    rows = [["name", "a sentence of many words that goes on for a while and does not fit", "0.123 to 0.456"]]
    said = printed(50, None, ["check", "what was tried", "interval"], rows, words=(0, 1))
    assert "0.123 to 0.456" in said
    assert max(map(len, said.splitlines())) <= 50
    assert "while" in said


def test_long_names_get_places_to_break():
    assert narrow("matched(leak_auc=0.6, visits=5)") == "matched\n(leak_auc=0.6,\nvisits=5)"
