"""A finished run's report in MLflow's own store, read back with its own client."""

import os
import sys
from pathlib import Path

import pytest

from tacit.errors import UsageError
from tacit.report.document import Leak, Moment, Report, Subject
from tacit.report.mlflow import log_report
from tacit.report.seals import write_report

pytest.importorskip("mlflow")
VERSIONS = {"tacit": "1", "torch": "2"}


@pytest.fixture(name="client")
def _client(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=(tmp_path / "ml").as_uri())


@pytest.fixture(name="finished")
def _finished(written):
    """The folder of a run that is over, with its report; as many attacks as asked for."""

    def finished(attacks=("accumulated(norm, k=1)",)):
        run = written()
        run.status(state="finished", turn=110, epoch=2)
        write_report(
            Report(
                made="2026-11-15T10:00:00+00:00", verdict="held", limit=0.6,
                subject=Subject(kind="run", side="features", run="flights", party="airline", versions=VERSIONS),
                worst=Leak(attack=attacks[0], on="visits", value=0.53, low=0.5, high=0.56),
                leaks=tuple(Leak(attack=name, on="visits", value=0.53, low=0.5, high=0.56) for name in attacks),
                moments=tuple(
                    Moment(epoch=epoch, figures={"test_auc": value, "test_loss": None})
                    for epoch, value in ((1, 0.6), (2, 0.7))
                ),
            ),
            run.path,
        )  # fmt: skip
        return run.path

    return finished


def test_a_report_is_read_back(tmp_path, finished, client):
    folder = finished()
    logged = log_report(folder, uri=(tmp_path / "ml").as_uri(), experiment="own")
    run = client.get_run(logged)
    assert run.info.experiment_id == client.get_experiment_by_name("own").experiment_id
    assert (run.info.run_name, run.info.status) == ("airline / flights", "FINISHED")
    assert run.data.params == {
        "kind": "run", "side": "features", "run": "flights", "party": "airline", "limit": "0.6",
        "versions.tacit": "1", "versions.torch": "2",
    }  # fmt: skip
    assert run.data.tags["tacit.verdict"] == "held"
    read = "leak_auc/accumulated.norm.k_1 on visits at cut"
    assert run.data.metrics == {
        read: 0.53, f"{read}.low": 0.5, f"{read}.high": 0.56,
        "worst": 0.53, "worst.low": 0.5, "worst.high": 0.56, "test_auc": 0.7,
    }  # fmt: skip
    assert [(one.step, one.value) for one in client.get_metric_history(logged, "test_auc")] == [(1, 0.6), (2, 0.7)]
    for name in ("report.json", "report.html"):
        copy = client.download_artifacts(logged, name, str(tmp_path))
        assert Path(copy).read_bytes() == (folder / name).read_bytes()


def test_logged_again_it_is_another_run_of_the_same_experiment(tmp_path, finished, client):
    folder = finished()
    both = [log_report(folder, uri=(tmp_path / "ml").as_uri()) for _ in range(2)]
    (where,) = {client.get_run(one).info.experiment_id for one in both}
    assert {one.info.run_id for one in client.search_runs([where])} == set(both)


def test_more_figures_than_a_request_may_hold(tmp_path, finished, client):
    folder = finished([f"attack {k}" for k in range(400)])
    logged = log_report(folder, uri=(tmp_path / "ml").as_uri())
    assert len(client.get_run(logged).data.metrics) == 3 * 400 + 3 + 1


def test_what_is_not_finished_or_was_changed_is_not_logged(tmp_path, finished, written):
    folder = finished()
    report = folder / "report.json"
    report.write_text(report.read_text().replace('"held"', '"no limit"'))
    with pytest.raises(UsageError, match=r"report\.json is not as `tacit audit` wrote it"):
        log_report(folder, uri=(tmp_path / "ml").as_uri())
    report.unlink()
    with pytest.raises(UsageError, match="is no finished run with a report"):
        log_report(folder, uri=(tmp_path / "ml").as_uri())
    with pytest.raises(UsageError, match="is no finished run with a report"):
        log_report(written("airport").path, uri=(tmp_path / "ml").as_uri())
    with pytest.raises(UsageError, match="is no finished run with a report"):
        log_report(tmp_path / "nowhere", uri=(tmp_path / "ml").as_uri())
    assert not (tmp_path / "ml").exists()


@pytest.mark.parametrize("own", [None, "false"])
def test_mlflow_is_asked_to_keep_quiet_unless_its_user_has_said(own, tmp_path, finished, client, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", own or "")
    if own is None:
        monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY")
    log_report(finished(), uri=(tmp_path / "ml").as_uri())
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == (own or "true")


def test_without_mlflow_it_says_how_to_install_it(tmp_path, finished, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UsageError, match=r"mlflow is not installed .*: pip install 'tacit\[tracking\]'"):
        log_report(finished(), uri=(tmp_path / "ml").as_uri())


def test_mlflow_is_imported_when_a_report_is_logged(alone):
    code = "import sys, tacit, tacit.cli, tacit.report.mlflow\nprint('mlflow' in sys.modules)"
    assert alone(code).strip() == "False"
