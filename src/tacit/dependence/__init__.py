"""How much one set of rows says about another: distance correlation, which a protection lowers and a metric reports.

Mathematics only, on tensors: this package knows nothing of parties.
"""

from tacit.dependence._correlation import EXACT_ROWS, PROJECTIONS, distance_correlation, log_distance_correlation

__all__ = ["EXACT_ROWS", "PROJECTIONS", "distance_correlation", "log_distance_correlation"]
