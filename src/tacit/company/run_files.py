"""Files of a run that others read: what its gate decided, what each look found, who let it out or on all the same."""

GATE, LIVE, OVERRIDES = "gate.jsonl", "live.jsonl", "overrides.jsonl"
