"""How messages travel between parties, and what is written down of them."""
