"""Pictures of metrics: one model, written as DOT, SVG and Mermaid text."""

from dagengine.report.pictures.drawing import Picture, draw

__all__ = ["Picture", "draw"]
