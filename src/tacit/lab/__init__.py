"""The lab: data sets, sweeps over strengths, and the papers' figures, all in one process and in the clear."""
