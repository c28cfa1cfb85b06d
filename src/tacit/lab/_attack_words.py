"""The table of attacks in words: Markdown, for a page of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.lab.attack_table import AttackTable, Column, Line, On

__all__ = ["BLOCKS", "body", "cell", "lines", "markdown", "note"]

BLOCKS: dict[On, str] = {
    "batches": "on single batches",
    "visits": "over all visits of an example",
    "answers": "if every request were answered {answers} times",
}


def lines(table: AttackTable, on: On) -> list[tuple[str, list[Line | None]]]:
    """For each attack of a block its finding in each column, None where it could not run."""
    found = [{one.finding.attack: one for one in column.lines if one.on == on} for column in table.columns]
    names = dict.fromkeys(name for column in found for name in column)
    return [(name, [column.get(name) for column in found]) for name in names]


def cell(line: Line | None) -> str:
    """A leak AUC; in brackets what the attacker reaches without any row's gradient, "=" where that is all it uses."""
    if line is None:
        return "-"
    one = line.finding
    if one.baseline is None:
        return f"{one.leak.value:.3f}"
    return f"{one.leak.value:.3f} ({'=' if one.baseline == one.leak else f'{one.baseline.value:.3f}'})"


def body(table: AttackTable) -> list[list[list[str]]]:
    """The rows of the table in sections: its head, each block of attacks, and what is worst with what it costs."""
    head = ["attack", "seconds", *(f"`{column.protection}`" for column in table.columns)]
    sections = [[head]]
    for on, title in BLOCKS.items():
        block = [[name, _seconds(found), *map(cell, found)] for name, found in lines(table, on)]
        if block:
            sections.append([[f"*{title.format(**table.recipe)}*", *([""] * (len(head) - 1))], *block])
    last = [
        ["**worst, as the protocol allows**", "", *(f"**{_worst(column)}**" for column in table.columns)],
        ["test AUC of the model", "", *(f"{column.test_auc:.3f}" for column in table.columns)],
        ["noise over gradient", "", *(f"{column.noise:.1f}x" for column in table.columns)],
    ]
    return [*sections, last]


def markdown(table: AttackTable) -> str:
    """The whole table, the worst attack last, with what there is to know about it."""
    head, *others = body(table)
    rows = [*head, ["---", *("---:" for _ in head[0][1:])], *(row for section in others for row in section)]
    return "\n".join([note(table), "", *(f"| {' | '.join(row)} |" for row in rows), ""])


def note(table: AttackTable) -> str:
    """What was trained and how to read it."""
    recipe = table.recipe
    return (
        f"{recipe['data']}: {recipe['training_rows']:,} training rows, {recipe['share']:.1%} positive, "
        f"{recipe['epochs']} epochs, batches of {recipe['batch_size']:,}, seed {recipe['seed']}. Leak AUC on the last "
        f"{recipe['attacked_batches']} batches, and over all visits of {recipe['followed']:,} examples; 0.5 is a coin "
        "flip, 1.0 an open book. In brackets: what the same attacker reaches from its own embeddings, without the "
        "gradient of the row; = where it looks at nothing else, which is what the model has learned and no leak of the "
        "gradients. The worst is what lies farthest above that. Seconds: of the attack, on one machine, the mean over "
        "the columns."
    )


def _seconds(found: Sequence[Line | None]) -> str:
    times = [one.finding.seconds for one in found if one is not None]
    return f"{sum(times) / len(times):.2f}" if times else ""


def _worst(column: Column) -> str:
    return f"{column.worst.leak.value:.3f} {column.worst.attack}"
