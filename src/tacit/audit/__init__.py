"""What a transcript gives away: attacks that guess labels, metrics that judge the guesses, and the run over both.

Attacks see a `View` and what they are granted; the truth reaches metrics alone.
"""
