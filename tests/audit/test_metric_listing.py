from tacit import plugins
from tacit.audit import metrics


def test_every_file_is_a_metric():
    some = {"leak_auc", "detection_error", "calibration_error", "reconstruction", "attribute_auc"}
    assert some <= set(metrics.names())
    for name in metrics.names():
        assert plugins.function(metrics.__name__, "metric", name).__doc__
