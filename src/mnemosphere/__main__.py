"""`python -m mnemosphere`: the command line."""

from mnemosphere.cli import main

main()
