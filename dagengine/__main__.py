"""`python -m dagengine`."""

from dagengine.cli.commands import main

main()
