"""Where things lie that tests read: the project's root, and what may stand beside a checkout."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SEEDS = Path(os.environ.get("DAGENGINE_SEEDS", ROOT.parent / "shared" / "seeds"))
"""The published documents whose snippets must run; a checkout need not have them."""
TRACES = Path(os.environ.get("DAGENGINE_TRACES", ROOT.parent / "shared" / "data" / "traces"))
"""Small traces of real instrumentations, and the case that each should give."""
