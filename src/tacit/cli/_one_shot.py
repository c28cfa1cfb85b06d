"""What `tacit train` says after a one-shot training: the certificate, or what decoders read of what was sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from tacit.cli._tables import console, print_table

if TYPE_CHECKING:
    from tacit.party.one_shot_features import FeatureOutcome
    from tacit.party.one_shot_label import LabelOutcome

__all__ = ["as_document", "print_outcome"]

_SHOWN = 8  # columns of a table, the most readable first
_NAMES = {"test_auc": "test AUC", "test_accuracy": "accuracy", "test_r2": "variance told", "test_rmse": "error"}


def as_document(outcome: LabelOutcome | FeatureOutcome) -> dict[str, Any]:
    """Everything as values that JSON has."""
    from tacit.party.one_shot_label import LabelOutcome

    told = {"run": outcome.folder.name, "mode": "one_shot", "folder": str(outcome.folder)}
    if isinstance(outcome, LabelOutcome):
        return {
            **told,
            "figures": outcome.figures,
            "alone": outcome.alone,
            "certificate": outcome.certificate.as_dict(),
            "received_bytes": outcome.received,
        }
    return {**told, "audit": outcome.audit, "form": outcome.form, "sent_bytes": outcome.sent, "heard": outcome.heard}


def print_outcome(outcome: LabelOutcome | FeatureOutcome, *, as_json: bool, quiet: bool) -> None:
    """Print it for people, or as one document."""
    from tacit.party.one_shot_label import LabelOutcome

    if as_json:
        typer.echo(json.dumps(as_document(outcome)))
    elif isinstance(outcome, LabelOutcome):
        _print_label(outcome, quiet=quiet)
    else:
        _print_features(outcome, quiet=quiet)


def _print_label(outcome: LabelOutcome, *, quiet: bool) -> None:
    names = {
        "test_auc": "test AUC",
        "test_accuracy": "accuracy",
        "test_r2": "share of variance told",
        "test_rmse": "error",
    }
    rows = [
        [names.get(name, name), f"{value:.4f}", f"{outcome.alone[name]:.4f}"] for name, value in outcome.figures.items()
    ]
    if rows:
        print_table("Your private model, on the test rows", ["figure", "with partners", "without"], rows)
    screen, certificate = console(100), outcome.certificate
    screen.print(f"[bold]Certificate of your labels.[/bold] {certificate.sentence}")
    if quiet:
        return
    screen.print(f"{certificate.rows:,} labels left as {certificate.mechanism}. {certificate.posterior}".strip())
    if certificate.why:
        screen.print(f"Note: {certificate.why}.")
    screen.print(f"Everything else about the run stays here: {outcome.folder}", soft_wrap=True)


def _print_features(outcome: FeatureOutcome, *, quiet: bool) -> None:
    audit = outcome.audit
    worst: dict[str, dict[str, Any]] = {}
    for one in audit["findings"]:  # largest upper end first
        if one["counted"]:
            worst.setdefault(one["column"], one)
    rows = [
        [name, one["question"], f"{one['read']['value']:.1%}", f"{one['read']['high']:.1%}"]
        for name, one in list(worst.items())[:_SHOWN]
    ]
    print_table("The most that decoders read of each column", ["column", "what", "read", "at most"], rows, words=(0, 1))
    if quiet:
        return
    form = outcome.form
    screen = console(100)
    screen.print(
        f"{outcome.sent:,} bytes were sent, once: {form['width']:g} numbers a row in {form['ranks']:g} ranks"
        + (f", under noise of {form['noise']:g}." if form["noise"] else ".")
        + " This is a measurement, by decoders that know half of the rows; all findings are in"
        f" {outcome.folder / 'release' / 'release.json'}",
        soft_wrap=True,
    )
