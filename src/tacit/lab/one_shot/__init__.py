"""One-shot training over mechanisms, widths, noise and learners: what each is worth, what is read, and what to take."""
