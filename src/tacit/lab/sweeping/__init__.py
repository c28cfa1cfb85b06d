"""Sweeps: many settings of one data set, trained together, with every leak measured on the way."""
