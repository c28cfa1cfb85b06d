"""README's table: every way to train on the same rows, under the same seeds, judged alike; written to one JSON.

`python -m benchmarks.comparison` measures all rows, `python -m benchmarks.comparison ROW ...` some of them and keeps
the others; either way README's picture is drawn and its table filled from what is measured by then (`--draw` does only
that).
"""
