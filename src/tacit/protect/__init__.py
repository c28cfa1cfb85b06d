"""What a party does to what it sends, before it is sent.

`labels` act on labels once, before the loss; `gradient` acts on every gradient at the cut.
"""

from tacit.protect import gradient, labels

__all__ = ["gradient", "labels"]
