"""README's table: every way to train on the same rows, under the same seeds, judged alike; written to one JSON.

`python -m benchmarks.comparison` measures all rows, `python -m benchmarks.comparison ROW ...` some of them and keeps
the others. `python scripts/make_comparison.py` draws the picture and fills README's table from the same file.
"""
