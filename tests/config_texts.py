"""A contract and party files to edit."""

from __future__ import annotations

from tacit.config import (
    party_template,
)

CONTRACT = """
run = "flights"
label_party = "airline"
feature_parties = ["airport", "weather"]
loss = "binary"
epochs = 3
batch_size = 1024
[cut]
widths = { airport = 128, weather = [32, 8, 8] }
[minimum]
gradient = { name = "matched", leak_auc = 0.6 }
[share]
metrics = ["test_auc"]
"""
LABEL = party_template("label", "airline")
FEATURES = party_template("features", "airport").replace("numeric = []", 'numeric = ["temp"]')


def edited(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def with_limits(text: str, lines: str) -> str:
    """A template with these lines in the place of all that it says about limits, records and looks."""
    kept, skipped = [], False
    for line in text.splitlines():
        if line.startswith("["):
            skipped = line.startswith(("[record]", "[live]"))
        if not skipped and not line.startswith(("limit", "on_limit", "budget")):
            kept.append(line)
    return lines + "\n" + "\n".join(kept)
