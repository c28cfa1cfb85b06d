"""`python -m tacit` is the `tacit` command."""

from tacit.cli import main

main()
