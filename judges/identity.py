"""What of a judge reaches other processes: its name in a store, and itself without its keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

from dagengine.redaction import public_value


def durable_name(name: str, options: Mapping[str, Any]) -> str | None:
    """A name with the options that change answers; None when one of them has no JSON form.

    Such an option is an object, which shows only where it is in this process.
    """
    try:
        return f"{name} with {json.dumps(public_value(options), sort_keys=True)}"
    except TypeError:
        return None


class SharedJudge:
    """A judge that is one thing in its process: a copy would know nothing of its connections.

    Another process gets one without keys and connections.
    """

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Everything but keys, passwords and connections, for another process."""
        return {**vars(self), **self._public_state()}

    def _public_state(self) -> dict[str, Any]:
        """What is in the place of keys, passwords and connections, by attribute."""
        raise NotImplementedError
