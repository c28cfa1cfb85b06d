"""Tables fit the terminal and lose no figure, also on a narrow one."""

import io
import re

import pytest
from rich.console import Console

from tacit.cli._show import narrow, print_table


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


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_no_name_is_broken_inside_a_number(width):
    """Protections and attacks with their options, in two columns of words beside figures, as `tacit sweep` has them."""
    names = ["matched(leak_auc=0.95)", "marvell(scale=4.0, criterion='sum_kl')", "contextual(fit='network')@cut, 2/5"]
    rows = [[f"[bold reverse]{one}", "0.795", "0.213", "[red]0.999[/red]", "1.000", one] for one in names]
    head = ["setting", "test\nAUC", "test\nloss", "worst\nleak", "up\nto", "by attack"]
    said = printed(width, "flights, 243,986 rows, 3 epochs", head, rows, words=(0, 5))
    assert max(map(len, said.splitlines())) <= width
    tokens = said.split()
    for name in names:
        for word in name.replace("(", " (").split():
            assert word in tokens or name in said, (word, said)


def test_a_name_that_fits_is_left_as_it_is():
    assert "matched(leak_auc=0.95)" in printed(80, None, ["setting", "AUC"], [["matched(leak_auc=0.95)", "0.795"]])


def test_a_comma_between_thousands_is_no_place_to_break():
    said = printed(40, None, ["what", "to"], [["1,234,567 rows of a table that is long", "airport"]], words=(0, 1))
    assert "1,234,567" in said


def test_long_names_get_places_to_break():
    assert narrow("matched(leak_auc=0.6, visits=5)") == "matched\n(leak_auc=0.6,\nvisits=5)"
