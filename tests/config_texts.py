"""A contract and party files to edit, with most keys there are."""

from __future__ import annotations

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
LABEL = """name = "airline"
role = "label"
limit = 0.6
on_limit = "pause"
[network]
listen = "0.0.0.0:7443"
[data]
path = "data.parquet"
ids = ["id"]
label = "label"
categorical = []
numeric = []
flagged = []
[model]
name = "wide_deep"
layers = 3
sparse = false
[training]
optimizer = "adam"
learning_rate = 0.002
threads = 0
device = "auto"
checkpoint_every = 200
[protect]
gradient = { name = "matched", leak_auc = 0.6, visits = "epochs" }
[head]
kind = "trees"
[align]
runs_a_month = 10
allow_edits = false
[record]
last = 24
follow = 8192
[live]
every = 128
fitted = 5000
[serve]
deadline_ms = 500
fallback = true
batch_ms = 2.0
cache_seconds = 60
cache_rows = 100_000
rows_a_request = 1000
waiting_rows = 10_000
request_bytes = 1_048_576
"""
FEATURES = """name = "airport"
role = "features"
on_limit = "pause"
[network]
connect = "localhost:7443"
[data]
path = "data.parquet"
ids = ["id"]
categorical = []
numeric = ["temp"]
flagged = []
[model]
name = "wide_deep"
layers = 3
embedding = 4
sparse = false
[training]
optimizer = "adam"
learning_rate = 0.0005
threads = 0
device = "auto"
checkpoint_every = 200
[protect]
embedding = [{ name = "gaussian", snr = 4.0, clip = 8.0 }]
[learn]
learner = "trees"
pretrain = true
withheld = []
known = 0.5
[align]
runs_a_month = 10
allow_edits = false
keyed_rows_a_month = 10_000_000
[record]
last = 24
follow = 8192
[live]
every = 128
fitted = 5000
[serve]
rows_a_minute = 60_000
different_rows = 1_000_000
refresh_seconds = 300
"""


def edited(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def with_limits(text: str, lines: str) -> str:
    """A file with these lines in the place of all that it says about limits, records and looks."""
    kept, skipped = [], False
    for line in text.splitlines():
        if line.startswith("["):
            skipped = line.startswith(("[record]", "[live]"))
        if not skipped and not line.startswith(("limit", "on_limit", "budget")):
            kept.append(line)
    return lines + "\n" + "\n".join(kept)
