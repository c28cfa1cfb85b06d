"""An independent distance correlation: SciPy's distances and the definitions, one number at a time or nearly so."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist


def v_centred(a):
    """Double centring, entry by entry."""
    n = len(a)
    rows = [sum(a[i]) / n for i in range(n)]
    whole = sum(rows) / n
    return np.array([[a[i][j] - rows[i] - rows[j] + whole for j in range(n)] for i in range(n)])


def u_centred(a):
    """U-centring (Szekely and Rizzo, 2013), entry by entry."""
    n = len(a)
    rows = [sum(a[i]) for i in range(n)]
    whole = sum(rows) / ((n - 1) * (n - 2))
    return np.array(
        [
            [0.0 if i == j else a[i][j] - rows[i] / (n - 2) - rows[j] / (n - 2) + whole for j in range(n)]
            for i in range(n)
        ]
    )


class Reference:
    """Squared distance covariance and correlation by their definitions."""

    @staticmethod
    def covariance(x, z, unbiased=False):
        x, z = (np.asarray(side, dtype=np.float64).reshape(len(side), -1) for side in (x, z))
        n, centred = len(x), u_centred if unbiased else v_centred
        product = centred(cdist(x, x).tolist()) * centred(cdist(z, z).tolist())
        return product.sum() / (n * (n - 3) if unbiased else n * n)

    @classmethod
    def square(cls, x, z, unbiased=False):
        spread = cls.covariance(x, x, unbiased) * cls.covariance(z, z, unbiased)
        return cls.covariance(x, z, unbiased) / np.sqrt(spread)

    @classmethod
    def correlation(cls, x, z, unbiased=False):
        square = cls.square(x, z, unbiased)
        return np.sign(square) * np.sqrt(abs(square))


@pytest.fixture(name="reference")
def _reference():
    return Reference
