"""What the page is told of its drawings: plain data, in the terms of the front end."""

from __future__ import annotations

Box = tuple[float, float, float, float]
"""Left, top, width and height in pixels."""
