"""A lab's findings in words: one Markdown page that can be read without the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from papers.embedding.drawing import TITLES
from papers.embedding.records import Reading
from papers.embedding.settings import FIGURES, THEIRS

__all__ = ["HEAD", "table", "write"]

HEAD = ("setting", "model", "dCor", "report's loss", "decoder", "1% known", "linear", "mirror", "attribute", "labels")
"""The columns of the table of all settings."""


def table(found: Mapping[str, Reading]) -> Iterator[tuple[str, ...]]:
    """One line for each setting under `HEAD`."""
    for one in found.values():
        relative = {name: f"{value['value']:.3f}" for name, _, value in one.attacks}
        private, labels = one.record["attribute"], one.record["labels"]
        yield (
            one.label,
            f"{one.utility['value']:.3f}",
            f"{one.dcor()['value']:.3f} ({one.dcor(kind='unbiased')['value']:.2f})",
            f"{one.loss:.4g} ({one.relative_loss:.2f})",
            *(relative[name] for name in ("decoder", "few_pairs", "linear_decoder", "mirror")),
            "" if private is None else f"{private['auc']['value']:.3f}",
            " ".join(f"{finding['leak']['value']:.3f}" for finding in labels),
        )


def write(
    path: Path,
    *,
    title: str,
    settings: Mapping[str, Any],
    found: Mapping[str, Reading],
    figures: Sequence[str],
    drawn: Mapping[str, Path],
) -> None:
    """The page.

    Args:
        path: where it goes.
        title: of the data set.
        settings: what all settings share.
        found: every setting that was judged.
        figures: the tables and figures that were asked for.
        drawn: their pictures, in the same folder.
    """
    lines = [
        f"# Embedding protection on {title}",
        "",
        'The table and the figures of "Technical Report of Embedding Protection in Federated Learning", from runs of',
        f"our own: {_spelled(settings)}. Everything is judged on held-out rows.",
        "",
    ]
    for figure in figures:
        lines += [f"## {TITLES[figure]}", ""]
        if figure == "table-2":
            lines += [*_table_2(found, theirs=settings["data"] == "fashion"), ""]
        if figure in drawn:
            lines += [f"![{TITLES[figure]}]({drawn[figure].name})", ""]
    if "pictures" in drawn:
        lines += ["## Pictures", "", "![What a decoder makes of pictures it never saw](pictures.png)", ""]
    if found:
        lines += ["## All settings", "", *_legend(found), "", *_markdown(HEAD, table(found)), ""]
    path.write_text("\n".join(lines))


def _table_2(found: Mapping[str, Reading], *, theirs: bool) -> Iterator[str]:
    """Ours, beside theirs where the data is the same."""
    head = ["setting", "reconstruction loss", "test cross entropy", "training cross entropy"]
    rows = []
    for name in FIGURES["table-2"]:
        one = found[name]
        line = [one.label, f"{one.loss:.1f}", f"{one.utility['test_loss']:.3f}", f"{one.utility['train_loss']:.3f}"]
        known = [f"{value}" for value in THEIRS[name]] if name in THEIRS else ["", ""]
        rows.append([*line, *known] if theirs else line)
    return _markdown([*head, "report: reconstruction loss", "report: cross entropy"] if theirs else head, rows)


def _legend(found: Mapping[str, Reading]) -> Iterator[str]:
    first = next(iter(found.values()))
    yield f"- model: {first.utility['name']} on test rows."
    yield f"- dCor: between X and what is sent, in batches of {first.batch_size} rows; in brackets without bias."
    yield (
        "- report's loss: of an attacker of the report's shape which learns beside the training; in brackets over the "
        "loss of answering the mean. For comparison with the report only."
    )
    yield (
        "- decoder, 1% known, linear, mirror: errors of attackers that learnt from scratch after training, over the "
        "error of answering the mean: 0 reads everything, 1 nothing. They know half of the held-out rows and are "
        "judged on the other half; one of them knows only a hundredth."
    )
    private = first.record["attribute"]
    if private is not None:
        yield f"- attribute: AUC of guessing the feature party's column `{private['column']}`; 0.5 is a coin flip."
    if first.record["labels"]:
        names = ", ".join(finding["attack"] for finding in first.record["labels"])
        baseline = first.record["labels"][0]["baseline"]
        beside = "" if baseline is None else f" The finished model itself: {baseline['value']:.3f} without protection."
        yield f"- labels: AUC of the feature party guessing labels from its own embeddings ({names}).{beside}"


def _markdown(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _spelled(settings: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in settings.items() if key not in ("format", "data")}
    return ", ".join(
        f"{key.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{key} {value}"
        for key, value in shown.items()
    )
