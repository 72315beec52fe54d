"""Whether an agent works well: its calls, their arguments, its plan, the goals it reaches."""
