"""What commands print: estimates and comparisons on the terminal, and as JSON."""

from dagengine.cli.tables.plan_table import Assumptions, print_estimate

__all__ = ["Assumptions", "print_estimate"]
