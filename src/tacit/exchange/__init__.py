"""One exchange: randomized labels one way, a few bits of each row back, and a private head at home."""
