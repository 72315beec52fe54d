"""What each command's help shows at its end: how it is mostly used."""

from __future__ import annotations

_EXAMPLES = {
    "dagengine run": (
        "dagengine run metrics.py --data cases.jsonl --judge gpt-4o --store answers.db",
        "dagengine run metrics.py --data cases.csv --map question=input --judge llama3.1 "
        "--base-url http://localhost:11434/v1",
        "dagengine run metrics.py --data cases.jsonl --fail-if 'pass-rate<0.9' --junit out.xml",
    ),
    "dagengine merge": ("dagengine merge out/1 out/2 --out out/all",),
    "dagengine plan": ("dagengine plan metrics.py --data cases.jsonl --judge gpt-4o-mini",),
    "dagengine migrate": (
        "dagengine migrate tests/test_answers.py",
        "dagengine migrate --write tests/*.py",
    ),
    "dagengine benchmark": (
        "dagengine benchmark metrics.py --data cases.jsonl --times 20 --store answers.db",
        "dagengine benchmark metrics.py --data cases.jsonl --labels additional_metadata.label",
    ),
    "dagengine diff": (
        "dagengine diff out/old out/new",
        "dagengine diff out/old out/new --fail-if 'worse>0'",
    ),
    "dagengine show": (
        "dagengine show out --failed",
        "dagengine show out --case 7",
        "dagengine show out --failed --as-cases failed.jsonl",
    ),
    "dagengine synthesize": ("dagengine synthesize docs/ --judge gpt-4o --out goldens.jsonl",),
    "dagengine view": ("dagengine view out", "dagengine view out/old out/new"),
    "dagengine render": (
        "dagengine render metrics.py --out tree.svg",
        "dagengine render metrics.py --results out/results.jsonl --case 7 --out case-7.svg",
    ),
    "dagengine check": (
        "dagengine check metrics.py",
        "dagengine check metrics.py --data cases.jsonl --strict",
    ),
    "dagengine recommend": ("dagengine recommend",),
    "store show": ("dagengine store show answers.db",),
    "store prune": ("dagengine store prune answers.db --older-than 30 --compact",),
    "store export": ("dagengine store export answers.db --out answers.jsonl",),
    "store merge": ("dagengine store merge answers.db other.db",),
    "judge set": (
        "dagengine judge set gpt-4o",
        "dagengine judge set llama3.1 --base-url http://localhost:11434/v1",
    ),
    "judge check": (
        "dagengine judge check --judge llama3.1 --base-url http://localhost:11434/v1",
        "dagengine judge check --judge llama3.1 --base-url http://localhost:11434/v1 "
        "--data cases.jsonl --save",
    ),
    "judge show": ("dagengine judge show",),
    "judge unset": ("dagengine judge unset --user",),
    "test run": ("dagengine test run tests/test_answers.py -n 4",),
}


def examples_of(group: str, command: str) -> str | None:
    """The examples of a command of a group as Markdown; None for one that has none."""
    lines = _EXAMPLES.get(f"{group} {command}")
    if lines is None:
        return None
    return "Examples:\n\n" + "\n\n".join(f"`{line}`" for line in lines)
