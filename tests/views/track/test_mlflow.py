"""Runs in MLflow's own store, read back with its own client."""

import json
import os
from contextlib import closing

import pytest

from tacit.errors import LinkError, UsageError
from tacit.views.track import Export, MLflow, Point


@pytest.fixture(name="client")
def _client(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=(tmp_path / "ml").as_uri())


@pytest.fixture(name="runs")
def _runs(client):
    def runs(experiment="tacit"):
        return client.search_runs([client.get_experiment_by_name(experiment).experiment_id])

    return runs


@pytest.fixture(name="history")
def _history(client):
    return lambda run, name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]


def bring(folder):
    export = Export([folder / "runs"], lambda place: MLflow(folder / "ml", place.id, run=place.name))
    many = export.update()
    export.close()
    return many


def test_facts_and_figures_are_read_back(tmp_path, runs, history, client):
    with closing(MLflow(tmp_path / "ml", "1", run="mine", experiment="own")) as log:
        log.facts({"batch_size": 256})
        log.facts({"batch_size": 512, "seed": 1})
        log.points([Point("loss", 0, 0.7, 12.5), Point("leak/norm(k=1)", 0, 0.5, 12.5)])
        log.points([Point("loss", 3, 0.25), Point("leak/norm(k=1)", 3, 0.125)])
        assert (log.reached("loss"), log.reached("leak/norm(k=1)"), log.reached("other")) == (3, 3, -1)
    (run,) = runs("own")
    assert (run.info.run_name, run.info.status) == ("mine", "FINISHED")
    assert run.data.params == {"batch_size": "256", "seed": "1"}
    assert history(run, "loss") == [(0, 0.7), (3, 0.25)]
    assert history(run, "leak/norm.k_1") == [(0, 0.5), (3, 0.125)]
    assert client.get_metric_history(run.info.run_id, "loss")[0].timestamp == 12_500
    MLflow(tmp_path / "ml", "2", run="mine", experiment="own").close()
    assert len(runs("own")) == 2, "at another place it is another run"


def test_everything_a_run_has_found_is_there_once(tmp_path, make_run, runs, history, client):
    run = make_run().train(5, 15, 60)
    assert bring(tmp_path) > 0
    (kept,) = runs()
    looks = [json.loads(line) for line in (run.path / "live.jsonl").read_text().splitlines()]
    expected = {
        "utility/loss": [(one["step"], one["figures"]["loss"]) for one in looks],
        "leak/cosine": [(one["step"], 0.6) for one in looks],
        "gate/residual on visits": [(50, 0.57)],
        "gate/residual on visits.high": [(50, 0.58)],
        "gate/limit": [(0, 0.6), (50, 0.6)],
        "pace/turns_per_second": [(55, 5.5), (110, 2.75)],
        "report/accumulated.norm.precise on visits.low": [(100, 0.5)],
    }
    assert {name: history(kept, name) for name in expected} == expected
    assert kept.data.params.items() >= {"batch_size": "256", "role": "label", "cut.widths.airport": "8"}.items()
    assert kept.data.tags["gate/decision"] == "keep: it holds"
    assert kept.info.status == "FINISHED"
    assert {one.path for one in client.list_artifacts(kept.info.run_id)} == {"report.json", "report.html"}
    assert bring(tmp_path) == 0
    (again,) = runs()
    assert {name: history(again, name) for name in expected} == expected


def test_a_run_that_goes_on_gets_only_later_steps(tmp_path, make_run, runs, history):
    run = make_run()
    run.look(5)
    bring(tmp_path)
    assert runs()[0].info.status == "KILLED"
    run.status(pid=os.getpid())
    run.look(15)
    bring(tmp_path)
    (kept,) = runs()
    assert kept.info.status == "RUNNING"
    assert [step for step, _ in history(kept, "leak/cosine")] == [5, 15]


def test_many_points_go_in_several_requests(tmp_path, runs, history):
    with closing(MLflow(tmp_path / "ml", "1", run="mine")) as log:
        log.points([Point("loss", step, 0.5) for step in range(2500)])
    assert [step for step, _ in history(runs()[0], "loss")] == list(range(2500))


def test_a_database_needs_the_whole_of_mlflow(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"keeps no database: give a folder, .* or pip install mlflow"):
        MLflow("sqlite:///mlflow.db", "1", run="mine")


def test_a_server_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(LinkError, match=r"MLflow at http://127.0.0.1:9 refused \(.*give the same command again"):
        MLflow("http://127.0.0.1:9", "1", run="mine")


@pytest.mark.parametrize("own", [None, "false"])
def test_mlflow_is_asked_to_keep_quiet_unless_its_user_has_said(own, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", own or "")
    if own is None:
        monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY")
    MLflow(tmp_path / "ml", "1", run="mine").close()
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == (own or "true")
