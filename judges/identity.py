"""What judges are called in a store: the same in every process, and nothing that is secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dagengine.redaction import public_value


def durable_name(name: str, options: Mapping[str, Any]) -> str | None:
    """A name with the options that change answers; None when one of them has no JSON form.

    Such an option is an object, which shows only where it is in this process.
    """
    try:
        return f"{name} with {json.dumps(public_value(options), sort_keys=True)}"
    except TypeError:
        return None
