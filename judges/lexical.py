"""A judge without a model: sentences are split, words are counted, thresholds decide."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel

from dagengine.errors import InputError, UnsupportedError
from dagengine.prompts.evidence import Evidence, numbered_name, sentences
from dagengine.prompts.instructions import parts_of, without_examples
from dagengine.prompts.parsing import valid_answer
from dagengine.question import Answer, Capabilities, Question, schema_of

T = TypeVar("T", bound=BaseModel)
Meaning = Literal["supported", "relevant", "useful"]
Fields = dict[str, Any]
Words = Mapping[str, str]

EXTRACTED = ("statements", "truths", "claims", "questions")
"""The only field of an answer type says what to take out of the evidence."""

# A criterion that explains its verdicts says what `yes` is; these are the ways of saying it
# that words can decide. Evidence that bears an item out is no `it`: `it` is the item.
_GLOSS = re.compile(r"\byes:\s*([^;.]*)", re.IGNORECASE)
_SAYS, _THIS = r"(?:supports?|states?|says?|impl(?:y|ies))", r"(?:it|so|the \w+)"
_MEANINGS: Mapping[Meaning, re.Pattern[str]] = {
    "supported": re.compile(
        r"(?:the|at least one|one|some) \w+ "
        rf"(?:{_SAYS}(?: or {_SAYS})? {_THIS}(?: or {_SAYS} {_THIS})?|bears? {_THIS} out)(?:$|,)"
    ),
    "relevant": re.compile(rf"it (?:answers|helps(?: to)? answer) {_THIS}(?:$|,)"),
    "useful": re.compile(
        r"it (?:holds|contains) (?:at least )?(?:some|part|much|all) of what the "
    ),
}
_DENIAL = re.compile(r"\b(?:not|no|never|nothing|none|without|false\w*|wrong\w*|contradict\w*)\b")

_PLACE = re.compile(r" \(\d+ of \d+(?:, \w+)?\)$| \(empty list\)$")
# How `list_instructions` says that its items are those of a field of the case.
_OF_FIELD = re.compile(r'Judge each of the \d+ pieces of `([^`]*)`, as "([^"]*)",')
_ENDING = " .!?…؟।。！？"  # noqa: RUF001
_CLOSING = "\"'”’»)]」』）"  # noqa: RUF001
_CANNOT = (
    "use a model for this question. A lexical judge compares words, as a baseline for metrics "
    "such as faithfulness and answer relevancy. It extracts statements, truths, claims and "
    "questions. It also judges whether numbered items are supported, relevant or useful. For that, "
    "the criterion must explain `yes` (`yes: the facts support it`, `yes: it answers it`, "
    "`yes: it holds some of what the ...`), or `meanings` must"
)
# Scripts that put no spaces between words, or none between a word and what is joined to it.
_JOINED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_SHOWN = 5  # words that a reason quotes


class LexicalJudge:
    """Answers simple questions by comparing words: offline, deterministic, without a model.

    A text becomes its sentences, where an answer type has one of `EXTRACTED` as its only
    field. It answers for numbered items with the verdicts yes and no (and idk). `yes` needs a share
    of letters in common; words of one or two letters are left out:

    - supported: of the item, in the evidence. It is the mean of the share in all of it and the
      share in its best sentence. It is 0 if a number of the item is missing. `support` is the
      threshold.
    - relevant: of the item and the evidence, in terms of the shorter one. `relevance`.
    - useful: of the best sentence of the evidence, in the item. `usefulness`.

    The evidence is all that is not an item; the field `input` only if there is no other or for
    relevance. From `doubt` times the threshold on the verdict is idk where that is allowed. Words
    are equal that begin with the same `stem` letters; scripts without spaces are compared by pairs
    of characters. What the criterion says of `yes` tells which of the three is meant. The caller
    may also give it by the name of the items: `meanings={"requirement": "supported"}`. Everything
    else is an UnsupportedError, if possible before the run (`refuses`): other criteria, judgements,
    ratings, opinions, contradictions, bias, toxicity.

    Words have neither meaning nor negation. `no` means that words are missing, not that the
    evidence contradicts the item. A negated sentence passes.

    Agreement of "supported", by `python benchmarks/recorded/lexical.py`: with Llama-3-8B-Instruct
    on 889 claims of WikiEval accuracy 0.683 (always yes: 0.705), balanced accuracy 0.720 and
    Cohen's kappa 0.365. With people on 19 summaries these are 0.474 (always yes: 0.632), 0.583 and
    0.128. Of 125 sentences of factCC that contradict their source it passes 108 as supported.
    Weights and `support` were tuned on WikiEval, so it is not held-out data (kappa
    of its two halves: 0.406 and 0.326). The other thresholds are not measured. Use it to try out
    graphs and for cheap first checks, not for grading.
    """

    capabilities = Capabilities(text=False, repeatable=False, elastic=True)

    def __init__(
        self,
        *,
        support: float = 0.75,
        relevance: float = 0.2,
        usefulness: float = 0.4,
        doubt: float = 0.5,
        stem: int = 5,
        meanings: Mapping[str, Meaning] | None = None,
    ) -> None:
        shares = {
            "support": support, "relevance": relevance, "usefulness": usefulness, "doubt": doubt
        }  # fmt: skip
        for name, share in shares.items():
            if not 0 < share <= 1:
                raise InputError(f"{name} must lie above 0 and not above 1, got {share}")
        self._needed = dict(zip(_MEANINGS, shares.values(), strict=False))
        self._doubt = doubt
        if stem < 1:
            raise InputError(f"stem must be at least 1, got {stem}")
        self._stem = stem
        for label, meaning in (meanings or {}).items():
            if meaning not in get_args(Meaning):
                allowed = ", ".join(map(repr, get_args(Meaning)))
                raise InputError(
                    f"the meaning of {label!r} must be one of {allowed}, got {meaning!r}"
                )
        self._meanings: dict[str, Meaning] = dict(meanings or {})
        settings = (*self._needed.values(), doubt, stem, sorted(self._meanings.items()))
        self.identity = self.durable_identity = f"lexical 2 {settings!r}"

    def refuses(self, question: Question[Any]) -> str | None:
        """Why words do not answer a question, or None if they do."""
        try:
            self._fields(question)
        except UnsupportedError as error:
            return str(error)
        return None

    async def answer(self, question: Question[T]) -> Answer[T]:
        """The answer that words give; raises UnsupportedError where they give none."""
        fields = self._fields(question)
        raw = json.dumps(fields, ensure_ascii=False)
        return Answer(valid_answer(question, fields, raw), raw, mode="rules")

    def _fields(self, question: Question[Any]) -> Fields:
        answer_type: type[BaseModel] = question.answer_type
        schema = schema_of(answer_type)
        properties = schema.get("properties", {})
        step, evidence = _parts(question)
        name, shape = next(iter(properties.items()), ("", Fields()))
        if len(properties) == 1 and name in EXTRACTED and shape.get("type") == "array":
            return {name: _extract(name, shape, schema, evidence)}
        if properties.keys() == {"verdicts"}:
            item = _item_of(shape, schema)
            if {"verdict", "reason"} <= item.keys():
                return {name: self._verdicts(question, shape, item, step, evidence)}
        form = f"{answer_type.__name__}({', '.join(properties)})"
        raise _unsupported_error(question, f"it asks for {form}")

    def _verdicts(
        self,
        question: Question[Any],
        shape: Fields,
        item: Fields,
        step: str,
        evidence: Sequence[Evidence],
    ) -> list[Fields]:
        allowed = tuple(item["verdict"].get("enum", ()))
        if not {"yes", "no"} <= set(allowed) <= {"yes", "no", "idk"}:
            raise _unsupported_error(question, f"its verdicts are {allowed!r}")
        names: Iterable[Any]
        if item.keys() == {"statement", "reason", "verdict"}:
            source, *around = evidence  # its statements are the items
            label, items = _PLACE.sub("", source.label), list(dict.fromkeys(sentences(source.text)))
            key, names = "statement", items
        elif item.keys() == {"reason", "verdict"}:
            label, items, around = _numbered_items(question, shape, step, evidence)
            key, names = "number", range(1, len(items) + 1)
        else:
            raise _unsupported_error(question, f"its items have {', '.join(item)}")
        if not around:
            raise _unsupported_error(question, "there is nothing to compare its items with")
        meaning = self._meaning(question, label, step)
        by_sentence, together = _evidence_words(_texts_to_compare(around, meaning), self._stem)
        threshold = self._needed[meaning]
        verdicts: list[Fields] = []
        for name, text in zip(names, items, strict=True):
            overlap = _RULES[meaning](words_of(text, self._stem), by_sentence, together)
            verdict = "no"
            if overlap.share >= threshold:
                verdict = "yes"
            elif "idk" in allowed and overlap.share >= self._doubt * threshold:
                verdict = "idk"
            reason = f"{overlap.reason} ({threshold:.0%} needed)"
            verdicts.append({key: name, "reason": reason, "verdict": verdict})
        return verdicts

    def _meaning(self, question: Question[Any], label: str, step: str) -> Meaning:
        """Meaning of `yes` for an item: as the caller has it, or as the criterion explains it."""
        if label in self._meanings:
            return self._meanings[label]
        stated = _GLOSS.findall(step)
        gloss = " ".join("".join(stated).casefold().split())
        for meaning, pattern in _MEANINGS.items():
            if len(stated) == 1 and pattern.match(gloss) and not _DENIAL.search(gloss):
                return meaning
        raise _unsupported_error(
            question, f"the meaning of `yes` for {label!r} is not known: {stated!r}"
        )


# Most questions about one case show the same evidence, and come one after the other.
@lru_cache(maxsize=4)
def _evidence_words(texts: tuple[str, ...], stem: int) -> tuple[list[Words], Words]:
    """The words of each sentence, and of all together."""
    by_sentence: list[Words] = []
    together: dict[str, str] = {}
    for sentence in chain.from_iterable(map(sentences, texts)):
        by_sentence.append(words_of(sentence, stem))
        together.update(by_sentence[-1])
    return by_sentence, together


def _texts_to_compare(around: Sequence[Evidence], meaning: Meaning) -> tuple[str, ...]:
    """The evidence to compare items with.

    `input` is what was asked, no evidence: unless nothing else is there, or whether items are
    about it is just what is asked.
    """
    texts: dict[bool, list[str]] = {True: [], False: []}
    for piece in around:
        texts[_PLACE.sub("", piece.label) == "input"].append(piece.text)
    is_asked = meaning == "relevant"
    return tuple(texts[is_asked] or texts[not is_asked])


# Questions.


def _unsupported_error(question: Question[Any], why: str) -> UnsupportedError:
    name = question.name and f"{question.name}: "
    return UnsupportedError(f"{name}{why}; {_CANNOT}")


def _parts(question: Question[Any]) -> tuple[str, list[Evidence]]:
    """The step and the evidence of a prompt that the engine worded."""
    if question.parser is not None:
        raise _unsupported_error(question, "its answer is free text for a parser")
    try:
        step, evidence = without_examples(*parts_of(question.messages))
    except ValueError as error:
        raise _unsupported_error(question, f"its prompt is worded by a template: {error}") from None
    if not evidence:
        raise _unsupported_error(question, "there is no evidence")
    return step, evidence


def _item_of(shape: Fields, schema: Fields) -> Fields:
    """The fields of the items of a list, or of an object of items, each with its schema."""
    item: Fields = [shape.get("items", {}), *shape.get("properties", {}).values()][-1]
    name = str(item.get("$ref", "")).rpartition("/")[2]  # of a part that is defined apart
    fields: Fields = schema.get("$defs", {}).get(name, item).get("properties", {})
    return fields


def _numbered_items(
    question: Question[Any], shape: Fields, step: str, evidence: Sequence[Evidence]
) -> tuple[str, list[str], list[Evidence]]:
    """Name of the items, the items, and the evidence around them."""
    count = len(shape["properties"])
    field = _OF_FIELD.match(step)
    if field is not None:
        path, label = field.groups()
        expected = [numbered_name(path, index, count) for index in range(1, count + 1)]
    else:  # the items come last
        label = evidence[-count:][0].label.removesuffix(" 1")
        expected = [f"{label} {index}" for index in range(1, count + 1)]
    parts: dict[bool, list[Evidence]] = {True: [], False: []}
    numbered = set(expected)
    for piece in evidence:
        parts[piece.label in numbered].append(piece)
    if list(map(attrgetter("label"), parts[True])) != expected:
        raise _unsupported_error(question, "its items are not numbered in the evidence")
    return label, list(map(attrgetter("text"), parts[True])), parts[False]


def _extract(name: str, shape: Fields, schema: Fields, evidence: Sequence[Evidence]) -> list[Any]:
    """The different sentences of all evidence, the first ones if there is a limit."""
    texts = chain.from_iterable(map(sentences, map(attrgetter("text"), evidence)))
    distinct = list(dict.fromkeys(texts))[: shape.get("maxItems")]
    if name == "questions":
        return [f"{text.rstrip(_ENDING)}?" for text in distinct]
    if {"text", "factual"} <= _item_of(shape, schema).keys():
        asking = ("?", "？", "؟")  # noqa: RUF001
        return [
            {"text": text, "factual": not text.rstrip(_CLOSING).endswith(asking)}
            for text in distinct
        ]
    return distinct


# Words.


@dataclass(frozen=True, slots=True)
class Overlap:
    """How far an item is met, from 0 to 1, and why."""

    share: float
    reason: str


def words_of(text: str, stem: int) -> dict[str, str]:
    """The words of a text by what makes them equal, in order of first use.

    Numbers are equal as a whole, other words by their first `stem` letters.
    """
    words: dict[str, str] = {}
    for word in _tokens(text):
        words.setdefault(word if _has_digit(word) else word[:stem], word)
    return words


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


@lru_cache(maxsize=4096)
def _in_word(character: str) -> bool:
    """Return whether a character is a letter, a digit, or a mark that belongs to one."""
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _tokens(text: str) -> Iterable[str]:
    """Words without regard to case; pairs of characters where words are not set apart."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    for inside, run in groupby(plain, _in_word):
        if not inside:
            continue
        word, offset = "".join(run), 0
        for joined in _JOINED.finditer(word):
            if joined.start() > offset:
                yield word[offset : joined.start()]
            pairs = joined.group()
            yield from (pairs[start : start + 2] for start in range(max(1, len(pairs) - 1)))
            offset = joined.end()
        if offset < len(word):
            yield word[offset:]


@lru_cache(maxsize=4096)
def _weight(word: str) -> int:
    """Letters, where the first two of a word do not count: short words say little."""
    if _has_digit(word) or _JOINED.match(word):
        return len(word)
    return max(0, len(word) - 2)


def _part(item: Words, within: Words) -> float:
    """The share of an item's letters in words that are also in the other one."""
    whole, common = sum(map(_weight, item.values())), item.keys() & within.keys()
    if not whole:  # nothing but short words
        return len(common) / max(len(item), 1)
    return sum(_weight(item[key]) for key in common) / whole


def support_of(item: Words, by_sentence: Sequence[Words], together: Words) -> Overlap:
    """Overlap of an item with sentences: in all of them together, and in the best one."""
    missing = [word for key, word in item.items() if key not in together]
    numbers = list(filter(_has_digit, missing))
    if numbers:
        return Overlap(0.0, f"the evidence has no {_few_words(numbers)}")
    best = max(map(partial(_part, item), by_sentence), default=0.0)
    share = (_part(item, together) + best) / 2
    lacking = f", it has no {_few_words(missing)}" if missing else ""
    return Overlap(share, f"{share:.0%} of the words are in the evidence{lacking}")


def relevance_of(item: Words, by_sentence: Sequence[Words], together: Words) -> Overlap:
    """Overlap of an item and a text in words, in terms of the shorter one."""
    share = max(_part(item, together), _part(together, item))
    common = [word for key, word in item.items() if key in together]
    shared = f": {_few_words(common)}" if common else ""
    return Overlap(share, f"{share:.0%} of the words are in common{shared}")


def usefulness_of(item: Words, by_sentence: Sequence[Words], together: Words) -> Overlap:
    """Largest overlap of a sentence with an item."""
    share = max(map(partial(_part, within=item), by_sentence), default=0.0)
    return Overlap(share, f"{share:.0%} of the words of one sentence are in it")


def _few_words(words: Sequence[str]) -> str:
    """A few words, the longest first: those that say most."""
    longest = sorted(words, key=len, reverse=True)[:_SHOWN]
    return ", ".join(map(repr, longest))


_RULES = {"supported": support_of, "relevant": relevance_of, "useful": usefulness_of}
