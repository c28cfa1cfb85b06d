"""From ids to aligned tables to batches."""
