"""Whether a prompt fits into the window of its server, and whether the server read all of it."""

from dagengine.gateway.window.truncated_prompts import WholePrompts

__all__ = ["WholePrompts"]
