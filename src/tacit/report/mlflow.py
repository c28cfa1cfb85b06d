"""A finished run for MLflow (extra `[tracking]`): what the run's report says, and the report itself."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tacit.errors import UsageError
from tacit.report import seals
from tacit.report.exchange import figures_of
from tacit.report.rendering import read
from tacit.report.status import REPORT, read_run

_MOST = 1000  # figures of one request, as servers allow
_LONGEST = 5000  # letters of a value


def log_report(run: str | Path, *, uri: str | None = None, experiment: str = "tacit") -> str:
    """Log a finished run's report to MLflow, as a new run there.

    Who trained what under which protection and limit are its parameters, the verdict its tag `tacit.verdict`. What each
    attack reached, the model's figures by epoch and those of an exchange are metrics, with `.low` and `.high` where
    there is an interval. `report.json` and `report.html` are artifacts. All of it says what leaks: log it only where
    the owner of the secrets would. MLflow is asked not to tell its makers of its use, unless
    `MLFLOW_DISABLE_TELEMETRY` is set already.

    Args:
        run: the run's folder, as "airline/runs/flights".
        uri: where MLflow keeps its runs, as MLflow reads addresses; where it is set to, if not given.
        experiment: in which the run is logged; made where it is not there.

    Returns:
        The id that MLflow gave to the run.
    """
    folder = Path(run)
    path = folder / REPORT
    if read_run(folder).get("state") != "finished" or not path.exists():
        raise UsageError(
            f"{folder} is no finished run with a report: name the folder of a run, as airline/runs/flights, once "
            "`tacit train` is done; `tacit audit` makes its report again"
        )
    if seals.key_of(folder) is not None and not seals.holds(path):
        raise UsageError(f"{path} is not as `tacit audit` wrote it: audit the run again, then log it")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
    except ModuleNotFoundError as error:
        raise UsageError(f"mlflow is not installed ({error}): pip install 'tacit[tracking]'") from None
    report = read(path).model_dump(mode="json")
    subject = report["subject"]
    facts = {name: value for name, value in subject.items() if name not in ("versions", "files") and value}
    facts |= {f"versions.{name}": version for name, version in subject["versions"].items()}
    facts["limit"] = report["limit"]
    now = round(1000 * time.time())
    metrics = [Metric(_allowed(name), value, now, step) for name, step, value in _figures(report)]
    client = MlflowClient(tracking_uri=uri)
    known = client.get_experiment_by_name(experiment)
    where = client.create_experiment(experiment) if known is None else known.experiment_id
    name = f"{subject['party']} / {subject['run']}"
    made = str(client.create_run(where, run_name=name, tags={"tacit.verdict": report["verdict"]}).info.run_id)
    client.log_batch(made, params=[Param(_allowed(name), str(value)[:_LONGEST]) for name, value in facts.items()])
    for first in range(0, len(metrics), _MOST):
        client.log_batch(made, metrics=metrics[first : first + _MOST])
    for file in (path, path.with_suffix(".html")):
        client.log_artifact(made, str(file))
    client.set_terminated(made)
    return made


def _figures(report: Mapping[str, Any]) -> Iterator[tuple[str, int, float]]:
    """Every figure of a report: its name, the epoch (0 where it is of the whole run), and its value."""
    named = "{measure}/{attack} on {on} at {layer}"
    ended = [(named.format_map(leak), leak) for leak in report["leaks"]]
    ended += [] if report["worst"] is None else [("worst", report["worst"])]
    for name, figure in ended:
        yield name, 0, figure["value"]
        yield f"{name}.low", 0, figure["low"]
        yield f"{name}.high", 0, figure["high"]
    for moment in report["moments"]:
        yield from ((name, moment["epoch"], value) for name, value in moment["figures"].items() if value is not None)
    for name, value, ends in figures_of(report):
        if value is not None:
            yield name, 0, value
        if ends is not None:
            yield f"{name}.low", 0, ends[0]
            yield f"{name}.high", 0, ends[1]


def _allowed(name: str) -> str:
    """A name as MLflow allows it.

    >>> _allowed("leak_auc/accumulated(hint, k=1) on visits at cut.low")
    'leak_auc/accumulated.hint.k_1 on visits at cut.low'
    """
    plain = name.replace(", ", ".").replace("(", ".").replace(")", "")
    return re.sub(r"[^\w\-. :/]", "_", plain, flags=re.ASCII)
