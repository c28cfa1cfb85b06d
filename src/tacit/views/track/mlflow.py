"""Runs for MLflow: a folder, or a server with an http(s) address; a database where the whole of MLflow is installed.

MLflow tells its makers how it is used unless it is asked not to: here it is, unless its user has said otherwise.
"""

from __future__ import annotations

import importlib.util
import os
import re
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit.errors import LinkError, StorageError, UsageError
from tacit.views.track.tracker import Point, State, Tracker, needed

_PLACE = "tacit.place"
_MOST = {"metrics": 1000, "params": 100, "tags": 100}  # of one request, as servers allow
_LONGEST = 5000  # letters of a value
_STATES = {"running": "RUNNING", "finished": "FINISHED", "stopped": "KILLED"}


class MLflow(Tracker):
    """One run of an experiment, which is made where it is not there; a run of the same place goes on.

    Args:
        uri: a folder, or an address as MLflow reads them: `https://mlflow.example.org`.
        place: the id by which the run is found again.
        run: its name.
        experiment: in which it is.
    """

    def __init__(self, uri: str | Path, place: str, *, run: str, experiment: str = "tacit") -> None:
        self._uri = _address(uri)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        if self._uri.startswith("file:"):  # MLflow advises against folders and wants to hear that one is meant
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._entities, self._errors = needed("mlflow.entities"), needed("mlflow.exceptions")
        with self._talking():
            self._client = needed("mlflow.tracking").MlflowClient(tracking_uri=self._uri)
            known = self._client.get_experiment_by_name(experiment)
            where = known.experiment_id if known is not None else self._client.create_experiment(experiment)
            same = f"tags.`{_PLACE}` = '{place}'"
            earlier = self._client.search_runs([where], filter_string=same, max_results=1)
            kept = earlier[0] if earlier else self._client.create_run(where, tags={_PLACE: place}, run_name=run)
        self.id: str = kept.info.run_id  # MLflow's own of the run
        self._params: dict[str, str] = dict(kept.data.params)
        self._tags: dict[str, str] = dict(kept.data.tags)
        self._unknown = set(kept.data.metrics)  # there, but up to which step is not asked yet
        self._reached: dict[str, int] = {}
        if kept.info.status != _STATES["running"]:
            self._set(_STATES["running"])

    def reached(self, name: str) -> int:
        """The last step that is kept under a name; -1 where there is none."""
        spelled = metric_name(name)
        if spelled in self._unknown:
            with self._talking():
                history = self._client.get_metric_history(self.id, spelled)
            self._reached[spelled] = max((metric.step for metric in history), default=-1)
            self._unknown.discard(spelled)
        return self._reached.get(spelled, int(self._tags.get(f"{spelled}.step", -1)))

    def facts(self, facts: Mapping[str, object]) -> None:
        """Parameters of the run; MLflow lets none be changed, so the first value stays."""
        spelled = {metric_name(name): str(value)[:_LONGEST] for name, value in facts.items()}
        new = {name: value for name, value in spelled.items() if name not in self._params}
        self._log("params", [self._entities.Param(name, value) for name, value in new.items()])
        self._params |= new

    def points(self, points: Sequence[Point]) -> None:
        """Keep figures as metrics."""
        now, metrics = clock.time(), []
        for point in points:
            milliseconds = round(1000 * (now if point.time is None else point.time))
            metrics.append(self._entities.Metric(metric_name(point.name), point.value, milliseconds, point.step))
        self._log("metrics", metrics)
        for metric in metrics:
            self._reached[metric.key] = max(metric.step, self.reached(metric.key))

    def text(self, name: str, step: int, text: str, *, time: float | None = None) -> None:
        """Keep the latest words under a name, as a tag, and their step as another."""
        spelled = metric_name(name)
        tags = {spelled: text[:_LONGEST], f"{spelled}.step": str(step)}
        self._log("tags", [self._entities.RunTag(key, value) for key, value in tags.items()])
        self._tags |= tags

    def files(self, paths: Sequence[Path]) -> None:
        """Keep files as artifacts of the run."""
        with self._talking():
            for path in paths:
                self._client.log_artifact(self.id, str(path))

    def close(self, state: State = "finished") -> None:
        """Say how the run stands."""
        if state != "running":
            self._set(_STATES[state])

    def _log(self, kind: str, entities: Sequence[Any]) -> None:
        with self._talking():
            for first in range(0, len(entities), _MOST[kind]):
                self._client.log_batch(self.id, **{kind: entities[first : first + _MOST[kind]]})

    def _set(self, status: str) -> None:
        with self._talking():
            if status == _STATES["running"]:
                self._client.update_run(self.id, status=status)
            else:
                self._client.set_terminated(self.id, status=status)

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """What MLflow refuses, in one line; where it keeps runs says whose error it is."""
        try:
            yield
        except self._errors.MlflowException as error:
            kind = LinkError if self._uri.startswith("http") else StorageError
            reason = str(error).splitlines()[0][:300]
            raise kind(
                f"MLflow at {self._uri} refused ({reason}): look at the address and at the server, then give the same "
                "command again; nothing is kept twice"
            ) from None


def metric_name(name: str) -> str:
    """A name as MLflow allows it: "accumulated(hint, precise)" becomes "accumulated.hint.precise", "=" becomes "_".

    >>> metric_name("gate/accumulated(direct_label, precise) on visits.low")
    'gate/accumulated.direct_label.precise on visits.low'
    """
    plain = name.replace(", ", ".").replace("(", ".").replace(")", "")
    return re.sub(r"[^\w\-. :/]", "_", plain, flags=re.ASCII)


def _address(uri: str | Path) -> str:
    """An address as MLflow wants it; a folder becomes one that begins with "file:"."""
    text = str(uri)
    scheme, _, rest = text.partition(":")
    if not rest or isinstance(uri, Path):
        return Path(text).resolve().as_uri()
    if scheme not in ("file", "http", "https", "databricks") and importlib.util.find_spec("sqlalchemy") is None:
        raise UsageError(
            f"{text}: mlflow-skinny keeps no database: give a folder, the http(s) address of a server, or pip install "
            "mlflow"
        )
    return text
