"""Which labelled cases are sealed, and which are tried on, in folds: by content, once for all."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from dagengine.data.case_numbers import read_digest
from dagengine.errors import InputError
from dagengine.improvement.findings import Split
from dagengine.test_case import TestCase

FOLDS = 4
LEAST_TRIED = 20
"""Fewer cases (or groups) to try on show nothing."""


def split_cases(
    cases: Sequence[TestCase],
    labels: Mapping[int, Any],
    groups: Mapping[int, Hashable],
    sealed: float = 0.4,
    reads: Collection[str] = (),
    salt: str = "improve",
) -> Split:
    """Seal a share of the labelled cases; the same case is sealed in every run.

    Whether a case is sealed depends alone on what is read of it (`reads`: paths of fields), or of
    the cases of its group, so more cases move none from one part to the other. Cases that are
    equal in that, whatever their names, and cases of a group stay together. Another `salt` seals
    others. Raises InputError for too few cases.
    """
    if not 0.1 <= sealed <= 0.9:
        raise InputError(f"sealed={sealed}: the sealed share of the cases lies from 0.1 to 0.9")
    content = {case: read_digest(cases[case], reads) for case in labels}
    names = _group_names(content, groups)
    # A number from 0 to 1 that a name has in every process: `hash` differs between them.
    digests = {name: hashlib.sha256(f"{salt} {name}".encode()) for name in names.values()}
    draws = {name: int.from_bytes(h.digest()[:7]) / 2**56 for name, h in digests.items()}
    sealed_cases = tuple(case for case in sorted(labels) if draws[names[case]] < sealed)
    free = sorted((name for name in draws if draws[name] >= sealed), key=draws.__getitem__)
    if len(free) < LEAST_TRIED:
        raise InputError(
            f"{len(labels)} labelled cases leave {len(free)} to try changes on beside the sealed "
            f"part; {LEAST_TRIED} are the least that can show anything: label more cases "
            "(`dagengine labels plan` says which)"
        )
    folds: list[list[int]] = [[] for _ in range(FOLDS)]
    turn = {name: number % FOLDS for number, name in enumerate(free)}
    for case in sorted(labels):
        if names[case] in turn:
            folds[turn[names[case]]].append(case)
    contents = sorted(f"{content[case]} {labels[case]!r}" for case in sealed_cases)
    sha256 = hashlib.sha256("\n".join(contents).encode()).hexdigest()
    return Split(sealed_cases, tuple(map(tuple, folds)), sha256)


def _group_names(content: Mapping[int, str], groups: Mapping[int, Hashable]) -> dict[int, str]:
    """Name each case by the least digest of its group, in whatever order the cases are."""
    least: dict[Hashable, str] = {}
    for case, digest in content.items():
        group = groups.get(case, digest)
        least[group] = min(least.get(group, digest), digest)
    return {case: least[groups.get(case, digest)] for case, digest in content.items()}
