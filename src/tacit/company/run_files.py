"""Files of a run that others read.

What its gate decided, what each look found, who let it out or on all the same; what left for predictions, line by line;
of which rows which bytes left for serving, `MARK` bytes each; how a service is doing.
"""

GATE, LIVE, OVERRIDES = "gate.jsonl", "live.jsonl", "overrides.jsonl"
PREDICTIONS, SERVED, SERVING = "predictions.jsonl", "served.bin", "serving.json"
MARK = 16
