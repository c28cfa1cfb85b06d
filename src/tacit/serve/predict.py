"""`tacit predict`: the label party has a file of rows to score, the feature parties have their tables; all run it.

A link that breaks is made again, and a party that was killed is started again with the same command: what was settled
stays settled and is charged once, and embeddings that had not come whole are sent again, as the same bytes. Scores stay
at the label party. `tacit.serve.conversation` has what they say to each other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from tacit.company.audit import find_run
from tacit.company.folder import Folder
from tacit.errors import UsageError
from tacit.serve.conversation import Telling
from tacit.serve.halves import load_embedder, load_scorer, pin
from tacit.serve.job import alone
from tacit.serve.predict_features import Delivered, Delivering
from tacit.serve.predict_label import Asking, predict_file
from tacit.serve.scores import Written, check_out


def predict(
    path: Folder | str | Path,
    source: Path | None = None,
    out: Path | None = None,
    *,
    match: Literal["private", "keyed"] = "private",
    fallback: bool | None = None,
    telling: Telling | None = None,
    override: str | None = None,
    reason: str | None = None,
) -> Written | Delivered:
    """Score a file with the model of a finished run. All parties of the run call this at the same time.

    Started again after whatever ended it, the same call resumes.

    Args:
        path: the run's folder, or that of a party with one run.
        source: the label party's file of rows to score, with ids and its own columns; a feature party's table, where
            that is another one than party.toml names.
        out: the file of scores to write, .parquet or .csv; the label party's alone.
        match: how rows are found that all have: "private", as `tacit align` does, or "keyed", by tokens of all ids of
            the file under a key that all parties have.
        fallback: whether the label party scores rows that not all parties have by its own columns alone; None for yes
            where there is a model for that, which a split training has not.
        telling: told how far it is.
        override: the name of somebody who lets a model be used though its limit was not held; on record.
        reason: why; on record.
    """
    folder, where = find_run(path)
    telling, label = telling or Telling(), folder.config.role == "label"
    _check_arguments(folder, source, out, fallback)
    folder.check_pair(folder.terms)
    if folder.config.training.threads:
        torch.set_num_threads(folder.config.training.threads)
    with alone(where):
        telling.progress("loading the model", 0, 0)
        if label:
            assert source is not None
            assert out is not None
            scorer = load_scorer(path, "prediction", override=override, reason=reason)
            if fallback and not scorer.fallback:
                raise UsageError(
                    "--fallback: a split training leaves no model for rows without a partner: leave it out"
                )
            pin(where, folder.config.name, scorer.digest)
            asking = Asking(folder, where, scorer, source, match, telling)
            return predict_file(asking, out, fallback=scorer.fallback if fallback is None else fallback)
        embedder = load_embedder(path, "prediction", override=override, reason=reason)
        pin(where, folder.config.name, embedder.digest)
        table = folder.data if source is None else source
        return Delivering(folder, where, embedder, table, match, telling).until_delivered()


def _check_arguments(folder: Folder, source: Path | None, out: Path | None, fallback: bool | None) -> None:
    if folder.config.role == "features":
        if out is not None or fallback is not None:
            raise UsageError(
                f"{folder.config.name} is a feature party, which gets no scores: leave --out and --fallback out"
            )
        return
    if source is None or out is None:
        raise UsageError(
            f"{folder.config.name} is the label party: say which file is to be scored, and with --out where scores go"
        )
    check_out(out)
