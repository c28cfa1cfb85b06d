"""`tacit audit`: every attack on what was sent, after the fact or while a training still runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from tacit.align.batches import Plan
from tacit.audit.inputs import attack_inputs, mean_visits
from tacit.audit.standard import on_batches, on_visits
from tacit.company.aligned import aligned
from tacit.company.departures import disclosed
from tacit.company.folder import Folder
from tacit.company.verdict import Missing, Side, input_leaks_of, leaks_of, report_of, run_subject, skipped, versions
from tacit.contracts import View
from tacit.errors import TensorError, UsageError
from tacit.progress import Progress
from tacit.report.document import Leak, Report, Subject
from tacit.split.checkpoint import Checkpoints
from tacit.split.feature_party import FeatureParty
from tacit.split.feature_run import build_feature_party
from tacit.split.foreign_files import read_messages
from tacit.split.label_party import LabelParty
from tacit.split.label_run import build_label_party
from tacit.split.protect.facts import described
from tacit.split.record import RecordedRun
from tacit.split.run import plan_of
from tacit.split.run_record import with_records

_AT_ONCE = 8192  # rows whose inputs are looked up together
_DECODERS = ("linear_decoder", "decoder")
_OVER = {"batches": "single messages", "visits": "all visits together"}


def audit_files(
    path: str | Path,
    *,
    side: Side = "features",
    limit: float | None = None,
    batch_size: int = 1024,
    repeat: Sequence[str] = (),
    progress: Progress = lambda *_: None,
) -> Report:
    """Audit what somebody else's system sent, from the file of `tacit.split.foreign_files.read_messages`.

    On the side "features" the receiver of `gradients` is after `labels`; on the side "label" that of `embeddings` is
    after `inputs`. The upper end of no attack may pass the limit; `repeat` are commands that make this report again.
    """
    _check_limit(side, limit)
    needed = {"features": ("gradients", "labels"), "label": ("embeddings", "inputs")}[side]
    foreign = {"features": ("inputs",), "label": ("gradients", "labels", "clean")}[side]
    read = read_messages(path, needed=needed, leave=foreign, batch_size=batch_size)
    missing: list[Missing] = []
    if side == "features":
        assert read.labels is not None
        seen = (read.view, read.clean)
        leaks = _labels_leak(seen, seen if read.revisited else None, read.labels, missing, progress)
    else:
        assert read.inputs is not None
        hidden = read.inputs
        leaks = _inputs_leak(
            read.view, read.view if read.revisited else None, lambda ids: hidden[ids], missing, progress
        )
    if not read.revisited:
        why = (
            "without ids, every row counts as another example" if not read.named else "no example comes more than once"
        )
        missing.append(Missing("all visits of an example together", why))
    shape = read.view.rows.shape
    notes = [f"The file was audited as {shape[0]} batches of {shape[1]} rows."]
    notes += [note[0].upper() + note[1:] + "." for note in read.notes]
    payload = read.view.gradient if side == "features" else read.view.embedding
    subject = Subject(
        kind="files", side=side, run=Path(path).name, rows=int(read.view.rows.max()) + 1,
        width=payload.shape[2], steps=shape[0], versions=versions(), files=read.files,
    )  # fmt: skip
    return report_of(subject, leaks, missing, limit=limit, notes=notes, repeat=repeat)


def audit_run(folder: Folder, *, limit: float | None, repeat: Sequence[str] = (), progress: Progress) -> Report:
    """Audit what a party recorded of its own run, which may still go on: its gradients, or its embeddings."""
    config, where = folder.config, folder.run_folder(folder.terms)
    limit = config.limit if limit is None else limit
    _check_limit("features" if config.role == "label" else "label", limit)
    transcript = RecordedRun.open(where / "transcript")
    progress("preparing", 0, 0)
    contract, rows = folder.contract, aligned(folder)
    plan = plan_of(contract, rows)
    missing = _unseen(transcript, plan)
    if config.role == "label":
        label_party, _ = build_label_party(folder, rows, plan)
        cuts = list(contract.cut.widths.values())
        leaks = _own_labels(label_party, transcript, plan, missing, progress)
        protection = described(label_party.protect)
    else:
        party, _ = build_feature_party(folder, rows, plan)
        newest = Checkpoints(where / "checkpoints").newest()
        if newest is not None:  # what is hidden may be a layer of the model as it is now
            party.bottom.load_state_dict(newest.state["model"])
        cuts = [contract.cut.widths[config.name]]
        leaks = _own_inputs(party, transcript, missing, progress)
        protection = described(party.shield.protect)
    width = sum(map(math.prod, cuts))
    subject = run_subject(folder, protection, plan.train_count, width, epochs=contract.epochs, steps=transcript.steps)
    report = report_of(subject, leaks, missing, limit=limit, repeat=repeat)
    report = report if limit is None else report.model_copy(update={"on_limit": config.on_limit})
    report = report.model_copy(update={"disclosed": disclosed(folder)})
    return with_records(report, folder.run_folder(contract))


# --- attacks ---------------------------------------------------------------------------------------------------------


def _labels_leak(
    batches: tuple[View, Tensor | None],
    visits: tuple[View, Tensor | None] | None,
    labels: Tensor,
    missing: list[Missing],
    progress: Progress,
) -> tuple[Leak, ...]:
    """Every attack on single messages, and on all visits of an example together where there are any."""
    leaks: tuple[Leak, ...] = ()
    on: Literal["batches", "visits"]
    for on, seen in (("batches", batches), ("visits", visits)):
        if seen is None:
            continue
        attacks = on_batches if on == "batches" else on_visits
        reasons: dict[str, str] = {}
        told = partial(progress, f"attacking {_OVER[on]}")
        try:
            leaks += leaks_of(attacks(*seen, labels, progress=told, skipped=reasons), on)
        except UsageError as reason:  # none of them can run
            missing.append(Missing(f"every attack on {_OVER[on]}", str(reason), matters=True))
        missing += skipped(reasons, " over all visits" if on == "visits" else "")
    return leaks


def _inputs_leak(
    view: View, visits: View | None, inputs: Callable[[Tensor], Tensor], missing: list[Missing], progress: Progress
) -> tuple[Leak, ...]:
    """What decoders read in single messages, and in the mean of all visits where there are any."""
    leaks: tuple[Leak, ...] = ()
    tried = [(name, view, False) for name in _DECODERS] + ([] if visits is None else [("linear_decoder", visits, True)])
    for done, (name, seen, joined) in enumerate(tried):
        progress(f"attack {name}", done, len(tried))
        ids, places = seen.rows.unique(return_inverse=True)
        x = torch.cat([inputs(some) for some in ids.split(_AT_ONCE)]).flatten(1)
        here = View.of_embeddings(seen.embedding, rows=places)
        reasons, noise = dict[str, str](), torch.Generator().manual_seed(0)
        findings = attack_inputs(mean_visits(here) if joined else here, x, [name], noise=noise, skipped=reasons)
        missing += skipped(reasons)
        if joined:
            findings = [replace(finding, attack=f"accumulated({finding.attack})") for finding in findings]
        leaks += input_leaks_of(findings, "visits" if joined else "batches")
    return leaks


# --- a run of ours ---------------------------------------------------------------------------------------------------


def _own_labels(
    party: LabelParty, transcript: RecordedRun, plan: Plan, missing: list[Missing], progress: Progress
) -> tuple[Leak, ...]:
    labels = party.labels[: plan.train_count]
    if bool(labels.max() > 1):
        missing.append(Missing("all attacks on labels", "there are more than two classes", matters=True))
        return ()
    if not transcript.recorded:
        return ()
    batches = transcript.batches()
    return _labels_leak((batches.view, batches.clean), _visits(transcript), labels, missing, progress)


def _own_inputs(
    party: FeatureParty, transcript: RecordedRun, missing: list[Missing], progress: Progress
) -> tuple[Leak, ...]:
    if not transcript.recorded:
        return ()
    visits = _visits(transcript)
    seen = transcript.batches().view
    try:
        return _inputs_leak(seen, None if visits is None else visits[0], party.hidden, missing, progress)
    except (TensorError, UsageError) as reason:  # as where inputs are codes which the model embeds in no one place
        missing.append(Missing("all attacks on features", str(reason), matters=True))
        return ()


def _visits(transcript: RecordedRun) -> tuple[View, Tensor | None] | None:
    if not transcript.follow:
        return None
    found = transcript.visits()
    return (found.view, found.clean) if len(found.view.rows) > 1 else None


def _unseen(transcript: RecordedRun, plan: Plan) -> list[Missing]:
    missing = []
    if not transcript.recorded:
        missing.append(Missing("single messages", "no batch was recorded: set last in [record]", matters=True))
    if not transcript.follow and plan.epochs > 1:
        why = "no example was followed: set follow in [record]"
        missing.append(Missing("all visits of an example together", why, matters=True))
    if transcript.unrecorded:
        why = f"{transcript.unrecorded} of {transcript.steps} steps were not recorded, or what was is lost"
        missing.append(Missing("all visits of an example", why, matters=True))
    planned = plan.epochs * plan.steps
    if transcript.steps < planned:
        why = f"{transcript.steps} of {planned} steps were done up to the last checkpoint"
        missing.append(Missing("the rest of the run", why))
    return missing


def _check_limit(side: Side, limit: float | None) -> None:
    least = 0.5 if side == "features" else 0.0
    if limit is not None and not least < limit < 1:
        figure = "leak AUC is 0.5 for a coin flip" if side == "features" else "0 is nothing, 1 is everything"
        raise UsageError(f"limit = {limit:g} is not between {least:g} and 1 ({figure}): choose a number in between")
