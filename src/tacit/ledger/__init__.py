"""Who was answered how often, and under which noise: what has been spent of every example, over all runs."""
