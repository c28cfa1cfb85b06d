"""One-shot training: labels flipped once, embeddings attacked at home and sent once."""
