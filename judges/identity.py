"""What judges are called in a store: the same in every process, and nothing that is secret."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

_SECRET = re.compile(r"api_?key|secret|password|credential|token$", re.IGNORECASE)


def durable_name(name: str, options: Mapping[str, Any]) -> str | None:
    """A name with the options that change answers; None when one of them has no JSON form.

    Such an option is an object, which shows only where it is in this process.
    """
    shown = {key: value for key, value in options.items() if not _SECRET.search(key)}
    try:
        return f"{name} with {json.dumps(shown, sort_keys=True)}"
    except TypeError:
        return None


def public_address(url: str) -> str:
    """An endpoint without a user, a password, a query or a slash at its end."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl().rstrip("/")
