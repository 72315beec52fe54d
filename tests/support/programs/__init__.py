"""Commands, programs, pytest sessions and browsers, each in a process of its own."""
