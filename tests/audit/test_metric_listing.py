import pytest

from tacit.audit import metrics
from tacit.errors import UsageError


def test_every_file_is_a_metric():
    some = {"leak_auc", "detection_error", "distance_correlation", "log_loss", "calibration_error", "precision_recall"}
    assert some <= set(metrics.names())
    for name in metrics.names():
        assert metrics.metric(name).__name__ == name
        assert metrics.metric(name).__doc__


@pytest.mark.parametrize("name", ["nothing", "_checks", "os", "leak_auc.auc"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(UsageError, match=r"calibration_error, detection_error, distance_correlation, leak_auc"):
        metrics.metric(name)
