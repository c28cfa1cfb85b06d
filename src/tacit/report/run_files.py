"""Files of a run that others read.

What its gate decided, what each look found, who let it out or on all the same; of which rows which bytes left for
serving, `MARK` bytes each.
"""

GATE, LIVE, OVERRIDES = "gate.jsonl", "live.jsonl", "overrides.jsonl"
SERVED = "served.bin"
MARK = 16
