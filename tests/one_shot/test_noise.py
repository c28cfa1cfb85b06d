import numpy as np
import pytest
from scipy import stats

from tacit.errors import TensorError, UsageError
from tacit.one_shot import forms
from tacit.one_shot.forms import with_noise

SECRET = bytes(range(32))


def rows(count=4000, width=11, seed=0):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def test_noise_is_normal_and_its_numbers_are_independent():
    """Fixed key, so nothing flickers; each p-value lies below 1e-4 for one key in ten thousand."""
    z = rows()
    drawn = (with_noise(z, 0.5, secret=SECRET, version="v") - z) / 0.5
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-4
    apart = np.corrcoef(drawn.T)[np.triu_indices(z.shape[1], 1)]
    assert np.abs(apart).max() < 6 / len(z) ** 0.5
    assert np.abs(np.corrcoef(drawn[:, 0], z[:, 0])[0, 1]) < 6 / len(z) ** 0.5


def test_equal_rows_have_equal_noise_in_any_order_and_company():
    z = rows(50, 3)
    twice = with_noise(np.concatenate([z, z[::-1]]), 1.0, secret=SECRET, version="v")
    assert np.array_equal(twice[:50], twice[50:][::-1])
    assert np.array_equal(with_noise(z[7:8], 1.0, secret=SECRET, version="v"), twice[7:8])
    zero = np.array([[0.0], [-0.0]], dtype=np.float32)
    assert len(np.unique(with_noise(zero, 1.0, secret=SECRET, version="v"))) == 1


def test_rows_that_get_their_noise_in_parts_get_the_same(monkeypatch):
    z = rows(500, 1).round(1)
    whole = with_noise(z, 0.5, secret=SECRET, version="v")
    monkeypatch.setattr(forms, "_PART", 64)
    assert with_noise(z, 0.5, secret=SECRET, version="v").tobytes() == whole.tobytes()


def test_versions_and_secrets_share_no_noise():
    z = rows(4000, 1)
    one = with_noise(z, 1.0, secret=SECRET, version="one") - z
    for secret, version in ((SECRET, "two"), (SECRET[::-1], "one")):
        other = with_noise(z, 1.0, secret=secret, version=version) - z
        assert abs(np.corrcoef(one[:, 0], other[:, 0])[0, 1]) < 6 / len(z) ** 0.5


def test_each_number_has_its_scale():
    z = rows(4000, 2)
    drawn = with_noise(z, np.array([0.1, 2.0]), secret=SECRET, version="v") - z
    np.testing.assert_allclose(drawn.std(0), [0.1, 2.0], rtol=0.1)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"secret": b"short"}, UsageError, "32 bytes"),
        ({"scale": 0.0}, UsageError, "positive"),
        ({"scale": float("nan")}, UsageError, "positive"),
        ({"z": np.full((2, 2), np.inf)}, TensorError, "finite"),
        ({"z": np.zeros(3)}, TensorError, "rows, width"),
    ],
)
def test_what_would_hide_nothing_is_refused(change, error, match):
    options = {"z": rows(5, 2), "scale": 1.0, "secret": SECRET, "version": "v"} | change
    with pytest.raises(error, match=match):
        with_noise(**options)
