"""What a company runs: its folder with keys, settings and runs, and its half of the model."""
