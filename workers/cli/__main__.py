"""`python -m workers.cli`, the same command."""

from workers.cli import main

main()
