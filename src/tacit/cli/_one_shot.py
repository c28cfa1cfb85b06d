"""What `tacit train` says after a one-shot training: the label bound, or what decoders read of what was sent."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from tacit.cli._show import console, figures, plain, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.exchange.feature_party import FeatureOutcome
    from tacit.exchange.label_party import LabelOutcome
    from tacit.report.document import Report

_SHOWN = 8  # columns of a table, the most readable first


def print_outcome(outcome: LabelOutcome | FeatureOutcome, *, as_json: bool, quiet: bool) -> None:
    """Print it for people, or as one document."""
    from tacit.exchange.label_party import LabelOutcome

    where = outcome.folder
    told: dict[str, Any] = {"run": where.name, "mode": "one_shot", "folder": str(where), "report": _page(outcome)}
    if isinstance(outcome, LabelOutcome):
        label_bound = outcome.label_bound.as_dict()
        told |= {"figures": outcome.figures, "alone": outcome.alone, "label_bound": label_bound}
        told["received_bytes"] = outcome.received
    else:
        told |= {"audit": outcome.audit, "form": outcome.form, "sent_bytes": outcome.sent, "heard": outcome.heard}
    if as_json:
        typer.echo(json.dumps(told))
    elif isinstance(outcome, LabelOutcome):
        _print_label(outcome, quiet=quiet)
    else:
        _print_features(outcome, quiet=quiet)


def _print_label(outcome: LabelOutcome, *, quiet: bool) -> None:
    from tacit.report.words import spelled

    rows = [[spelled(name), f"{value:.4f}", f"{outcome.alone[name]:.4f}"] for name, value in outcome.figures.items()]
    if rows:
        print_table("Your private model, on the test rows", ["figure", "with partners", "without"], rows)
    screen, label_bound = console(100), outcome.label_bound
    screen.print(f"[bold]Label bound.[/bold] {label_bound.sentence}")
    if quiet:
        return
    screen.print(f"{label_bound.rows:,} labels were sent as {label_bound.mechanism}. {label_bound.posterior}".strip())
    if label_bound.why:
        screen.print(f"Note: {label_bound.why}.")
    screen.print(f"The report is {_page(outcome)}, with what is not covered; all of it stays here.", soft_wrap=True)


def _print_features(outcome: FeatureOutcome, *, quiet: bool) -> None:
    _print_columns(
        (one["column"], one["question"], one["given"], one["read"]["value"], one["read"]["high"])
        for one in outcome.audit["findings"]  # largest upper end first
        if one["counted"]
    )
    if not quiet:
        console(100).print(
            f"{outcome.sent:,} bytes were sent, once: {outcome.form}. This is a measurement, by "
            f"decoders that know some of the rows; the report is {_page(outcome)}",
            soft_wrap=True,
        )


def _print_columns(findings: Iterable[tuple[str, str, bool, float, float]]) -> None:
    """The worst of each column: its name, what was asked, whether all other columns were known, read, upper end."""
    from tacit.report.one_shot import asked
    from tacit.report.words import count

    worst: dict[str, list[str]] = {}
    for column, question, given, value, high in findings:
        known = ", others known" if given else ""
        worst.setdefault(column, [plain(column), plain(asked(question)) + known, f"{value:.1%}", f"{high:.1%}"])
    head = ["column", "what", "recovered", "at most"]
    rows = [*worst.values()][:_SHOWN]
    print_table("The most that decoders recovered of each column", head, rows, words=(0, 1))
    if len(worst) > _SHOWN:
        typer.echo(f"{count(len(worst) - _SHOWN, 'more column')}, of which less was recovered: in the report.")


def _page(outcome: LabelOutcome | FeatureOutcome) -> str:
    return str(outcome.folder / "report.html")


def print_exchange(run: dict[str, Any]) -> None:
    """What a status says of an exchange: the label bound or the form, figures, and what was sent."""
    told = run.get("label_bound")
    if told is not None:
        alone, epsilon = told.get("beside"), f"{math.log(told['total_odds']):.3f}"
        if alone:
            typer.echo(plain(f"  no bound is stated for these labels: {alone}"))
        typer.echo(
            f"  {'of exchanges alone' if alone else 'label bound'}: leak AUC {told['auc']:.4g}, odds "
            f"{told['odds']:.4g} ({told['rows']:,} labels); over all exchanges "
            f"{told['total_auc']:.4g} and {told['total_odds']:.4g} (epsilon {epsilon}) for "
            f"any {plain(told['unit'])}"
        )
    form = run.get("release")
    if form is not None:
        worst = f"decoders recovered at most {form['worst']:.1%} of any column, category or conjunction"
        typer.echo(f"  embedding: {form['form']}; {worst}")
    for line in run.get("history", []):
        if figures(line):
            typer.echo(plain(f"  private model: {figures(line).replace('_', ' ')}"))


def print_report(report: Report, paths: tuple[Path, Path]) -> None:
    """What an audit of an exchange found: every figure, and whether it is a bound or a measurement."""
    told = report.exchange
    assert told is not None  # else it is the report of another kind
    if told.release is not None:
        _print_columns((one.column, one.question, one.given, one.value, one.high) for one in told.release.columns)
    rows = [
        [one.name, one.kind, f"{one.value:.3f}", "" if one.most is None else f"{one.most:.3f}"] for one in told.figures
    ]
    print_table("Figures", ["figure", "kind", "value", "bound"], rows, words=(0, 1))
    screen = console(100)
    if told.label_bound is not None:
        screen.print(f"[bold]Label bound.[/bold] {told.label_bound.sentence}")
        screen.print(told.checked or "`tacit ledger --check` draws every bit that was sent again.")
    for one in report.not_tested:
        screen.print(plain(f"not tested: {one.what} ({one.why})"))
    limit = "no limit is set" if report.limit is None else f"limit {report.limit:g}: {report.verdict}"
    screen.print(f"{limit}. The report is {paths[1]}, and {paths[0].name} beside it for programs", soft_wrap=True)
