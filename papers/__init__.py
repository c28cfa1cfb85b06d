"""Every figure and table of the papers, from runs of our own, beside the authors' published points.

`make papers` draws all of them, `python -m papers NAME ...` some; `python -m papers --list` names them. What a figure
needs is trained once and kept in the folder of `--out`; the same command uses it again.
"""
