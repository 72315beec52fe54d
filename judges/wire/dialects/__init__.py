"""What servers say in words of their own: how answers end, where they are, what failed and why."""
