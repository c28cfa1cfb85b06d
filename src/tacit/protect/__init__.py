"""What a party does to what it sends, before it is sent.

`labels` act on labels once, before the loss; `gradient` acts on every gradient at the cut. `check_protection` says
whether one of your own keeps what every protection owes.
"""

from tacit.protect import gradient, labels
from tacit.protect.check import check_protection

__all__ = ["check_protection", "gradient", "labels"]
