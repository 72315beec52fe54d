"""What metrics are made of: their base, templates, extractions, scales, turns."""
