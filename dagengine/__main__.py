"""`python -m dagengine`."""

from dagengine.cli import main

main()
