"""`python -m promising.cli` is `promising`."""

from promising.cli import main

main()
