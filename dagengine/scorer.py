"""Classic scores of a text against a target, from 0 to 1, without a judge.

The packages that compute them are optional (`pip install dagengine[scorers]`) and loaded
when first used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from dagengine.errors import InputError, load_extra
from dagengine.unknown import Answering, answer_absent

_ROUGE = re.compile(r"rouge([1-9]|L|Lsum)")
# Modules by the package to install.
_PACKAGES = {
    "rouge-score": "rouge_score.rouge_scorer",
    "sacrebleu": "sacrebleu",
    "rapidfuzz": "rapidfuzz.distance",
}
# Distances of texts, by what rapidfuzz calls them.
DISTANCES = {
    "levenshtein": "Levenshtein",
    "damerau_levenshtein": "DamerauLevenshtein",
    "jaro": "Jaro",
    "jaro_winkler": "JaroWinkler",
    "hamming": "Hamming",
    "indel": "Indel",
}


def needs(package: str) -> Any:
    """The module of an optional package; raises MissingExtraError when it is not there."""
    return load_extra(_PACKAGES[package], "this score needs", "scorers")


def _texts(**texts: object) -> None:
    for name, value in texts.items():
        if not isinstance(value, str):
            raise InputError(f"{name} is {value!r:.80}, not a text")


class Scorer(Answering):
    """Scores of a `prediction` against a `target`; every one lies in [0, 1]."""

    def exact_match_score(self, prediction: str, target: str) -> float:
        """1 if both texts are equal except for whitespace around them, else 0."""
        _texts(prediction=prediction, target=target)
        return float(prediction.strip() == target.strip())

    def pattern_match_score(
        self, prediction: str, pattern: str | re.Pattern[str], *, anywhere: bool = False
    ) -> float:
        """1 if the regular expression matches the whole text (`anywhere`: a part), else 0.

        Whitespace around the text does not count when the whole of it is matched.
        """
        _texts(prediction=prediction)
        compiled = compiled_pattern(pattern)
        if anywhere:
            return float(compiled.search(prediction) is not None)
        return float(compiled.fullmatch(prediction.strip()) is not None)

    def rouge_score(
        self,
        prediction: str,
        target: str,
        score_type: str = "rouge1",
        *,
        use_stemmer: bool = True,
        tokenizer: Callable[[str], list[str]] | None = None,
    ) -> float:
        """The F-measure of ROUGE, as the package rouge-score computes it.

        `score_type` is rouge1 to rouge9, rougeL or rougeLsum; `use_stemmer` compares English
        words by their stems. The package's tokenizer knows ASCII letters and digits only;
        for other languages give a `tokenizer`. Raises InputError if nothing of
        the target would be left to compare.
        """
        _texts(prediction=prediction, target=target)
        characters = [character for character in target if character.isalnum()]
        foreign = characters and not any(character.isascii() for character in characters)
        if tokenizer is None and foreign:
            raise InputError(
                "the target has no ASCII letters or digits, and ROUGE's tokenizer knows only "
                "these; pass tokenizer=, for instance str.split"
            )
        own = SimpleNamespace(tokenize=tokenizer) if tokenizer else None
        kind = rouge_type(score_type)
        rouge = needs("rouge-score").RougeScorer([kind], use_stemmer, tokenizer=own)
        return float(rouge.score(target, prediction)[kind].fmeasure)

    def bleu_score(self, prediction: str, target: str | Sequence[str]) -> float:
        """Sentence BLEU against one target or several, as sacrebleu computes it, over 100."""
        targets = [target] if isinstance(target, str) else list(target)
        for reference in targets:
            _texts(prediction=prediction, target=reference)
        if not targets:
            raise InputError("there is no target to compare with; give at least one")
        score = needs("sacrebleu").sentence_bleu(prediction, targets).score / 100
        return min(1.0, float(score))  # a perfect match comes out a rounding error above

    def edit_similarity_score(
        self, prediction: str, target: str, *, distance: str = "levenshtein"
    ) -> float:
        """1 - distance of the texts / the largest distance that is possible; 1 for equal texts.

        `distance` is one of `DISTANCES`; Levenshtein's is divided by the length of the longer text.
        Raises InputError for another one.
        """
        _texts(prediction=prediction, target=target)
        measure = getattr(needs("rapidfuzz"), DISTANCES[distance_name(distance)])
        return float(measure.normalized_similarity(prediction, target))


def distance_name(name: str) -> str:
    """The name of a distance of texts; raises InputError when there is none of that name."""
    if name not in DISTANCES:
        raise InputError(f"no distance {name!r:.40}; use one of {', '.join(DISTANCES)}")
    return name


def rouge_type(name: str) -> str:
    """The name of a kind of ROUGE; raises InputError when there is none of that name."""
    if not _ROUGE.fullmatch(name):
        raise InputError(f"no score {name!r}; use rouge1 to rouge9, rougeL or rougeLsum")
    return name


def compiled_pattern(pattern: str | re.Pattern[str], ignore_case: bool = False) -> re.Pattern[str]:
    """A regular expression, compiled; raises InputError if it is not valid."""
    if isinstance(pattern, re.Pattern) and not ignore_case:
        return pattern
    text, flags = pattern, re.IGNORECASE if ignore_case else re.NOFLAG
    if isinstance(pattern, re.Pattern):
        text, flags = pattern.pattern, pattern.flags | flags
    try:
        return re.compile(text, flags)
    except re.error as error:
        raise InputError(f"{text!r} is not a regular expression: {error}") from None


answer_absent(__name__)
