"""What a shell offers for an option when Tab is pressed."""

from __future__ import annotations

OFFLINE = ("lexical", "gguf:")
"""Judges that are no model of a provider."""


def judge_names(incomplete: str) -> list[str]:
    """Complete a value of `--judge`: providers, and behind one of them its models.

    Models are those of the public price list. Where nothing fits, the shell offers files.
    """
    from genai_prices.data import providers

    from dagengine.judges.resolve import PROVIDERS

    provider, slash, _ = incomplete.partition("/")
    models = {entry.id: [model.id for model in entry.models] for entry in providers}
    if slash:
        names = [f"{provider}/{model}" for model in models.get(provider, ())]
    else:
        names = [*OFFLINE, *(f"{name}/" for name in sorted(PROVIDERS))]
        names += models["openai"] if incomplete else []
    return [name for name in names if name.startswith(incomplete)]
