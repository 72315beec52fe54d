"""Near duplicates: texts that share nearly all their words, or whose vectors point the same way."""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

from dagengine.errors import MissingExtraError
from dagengine.synthesis.passages import words_in

# The share of common word triples, and how many hashes estimate it.
_ALIKE, _HASHES, _WORDS = 0.8, 64, 3


class NearDuplicates:
    """Finds texts that are nearly equal to one that was added before (MinHash, LSH).

    Linear in the number of texts. Broder 1997, https://doi.org/10.1109/SEQUEN.1997.666900.
    """

    def __init__(self, alike: float = _ALIKE) -> None:
        """`alike` is the share of common word triples, from 0 to 1. Raises MissingExtraError."""
        try:
            import datasketch
        except ImportError:
            raise MissingExtraError(
                "goldens need datasketch: pip install 'dagengine[documents]'"
            ) from None
        self._empty: Any = datasketch.MinHash(num_perm=_HASHES, hashfunc=zlib.crc32)
        self._seen: Any = datasketch.MinHashLSH(threshold=alike, num_perm=_HASHES)
        self._alike = alike
        self._kept: list[array[int]] = []
        # A text is asked for, and then mostly added.
        self._last: tuple[str, tuple[array[int], Any]] | None = None

    def is_new(self, text: str) -> bool:
        """Whether no text before was nearly the same; the text then counts for later ones."""
        if self.is_known(text):
            return False
        self.add(text)
        return True

    def is_known(self, text: str) -> bool:
        """Whether a text before was nearly the same; this one counts for nothing."""
        pieces, found = self._hashed(text)
        # The buckets also bring texts that are alike in half; counting tells them apart.
        mine = set(pieces)
        near = (set(self._kept[place]) for place in self._seen.query(found))
        return any(len(mine & one) >= self._alike * len(mine | one) for one in near)

    def add(self, text: str) -> None:
        """Let a text count for later ones."""
        pieces, found = self._hashed(text)
        self._seen.insert(len(self._kept), found)
        self._kept.append(pieces)

    def _hashed(self, text: str) -> tuple[array[int], Any]:
        """The numbers of a text's triples of words, and the smallest of their hashes."""
        if self._last is not None and text == self._last[0]:
            return self._last[1]
        pieces = [piece.encode(errors="surrogatepass") for piece in _triples(text)]
        found = self._empty.copy()
        found.update_batch(pieces)
        hashed = array("L", map(zlib.crc32, pieces)), found
        self._last = text, hashed
        return hashed


def _triples(text: str) -> list[str]:
    words = words_in(text)
    count = max(1, len(words) - _WORDS + 1)
    return sorted({" ".join(words[place : place + _WORDS]) for place in range(count)})


class SameMeaning:
    """Finds texts by their vectors: near ones have a cosine of `alike` (0 to 1) or more.

    Every text is compared with all before it, which is quick for thousands.
    """

    def __init__(self, alike: float) -> None:
        import numpy

        self._alike = alike
        self._numpy: Any = numpy
        self._seen: dict[int, list[Any]] = {}  # by their length: those of another model are others

    def is_known(self, vector: Sequence[float] | None) -> bool:
        """Whether a vector before points nearly the same way; this one counts for nothing."""
        one = self._direction(vector)
        if one is None or not (seen := self._seen.get(len(one))):
            return False
        return bool((self._numpy.stack(seen) @ one).max() >= self._alike)

    def add(self, vector: Sequence[float] | None) -> None:
        """Let a vector count for later ones."""
        one = self._direction(vector)
        if one is not None:
            self._seen.setdefault(len(one), []).append(one)

    def _direction(self, vector: Sequence[float] | None) -> Any:
        """The vector with the length 1; None if it has no direction."""
        length = math.hypot(*vector) if vector else 0.0
        return None if not vector or not length else self._numpy.asarray(vector) / length
