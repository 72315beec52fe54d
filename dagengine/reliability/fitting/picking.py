"""Which labelled cases make good examples of a node: few, of every answer, unlike each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagengine.graph.judging import Example
from dagengine.graph.node import AskingNode
from dagengine.graph.nodes import RatingNode
from dagengine.prompts.evidence import as_text
from dagengine.reliability.labels import Given, Vote
from dagengine.test_case import TestCase, read_field

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Solved:
    """An example that a label would make: of which case, and whether the judge gets it wrong."""

    case: int
    example: Example
    wrong: bool = False

    @property
    def words(self) -> frozenset[str]:
        """The words of all that it shows."""
        reads = self.example.reads
        texts = map(as_text, reads.values()) if isinstance(reads, Mapping) else [as_text(reads)]
        return frozenset(word.casefold() for text in texts for word in _WORD.findall(text))

    @property
    def size(self) -> int:
        """The characters that it adds to a prompt, about."""
        reads = self.example.reads
        shown = reads.values() if isinstance(reads, Mapping) else [reads]
        return sum(len(as_text(value)) for value in shown) + len(self.example.reason or "")


def solved_cases(
    node: AskingNode,
    answers: Given,
    cases: Sequence[TestCase],
    *,
    judged: Mapping[int, Vote] | None = None,
    outputs: Mapping[int, Mapping[str, Any]] | None = None,
    sealed: Collection[int] = (),
) -> list[Solved]:
    """The examples that people's answers to a node would make, in the order of the cases.

    `answers` are those of people by the number of the case (`walked_answers`; ratings from 0 to 1),
    `judged` those of the judge, `outputs` what the nodes that it reads gave, by label. Cases of
    which people differ, that are `sealed`, or that lack something that the node reads are left out;
    so is a text with two answers. Nodes that go over lists have no example by case.
    """
    made: list[Solved] = []
    wanted = node.names_in_examples(
        [*node.evaluation_params, *(source.output_label or source.title for source in node.inputs)]
    )
    outputs, judged = outputs or {}, judged or {}
    for number in sorted((answers.keys() & range(len(cases))) - set(sealed)):
        # People who differ have no answer to show, nor has one that the node cannot give.
        agreed = {_answer(node, vote) for vote in answers[number]}
        answer = agreed.pop() if len(agreed) == 1 else None
        if answer is None:
            continue
        fields = {path: read_field(cases[number], path) for path in node.evaluation_params}
        values = {**fields, **outputs.get(number, {})}
        reads = {name: values[name] for name in wanted if values.get(name) is not None}
        if len(reads) == len(wanted):
            vote = judged.get(number)
            differs = vote is not None and _answer(node, vote) != answer
            made.append(Solved(number, Example(reads, answer), differs))
    return _unambiguous(made)


def _unambiguous(solved: Sequence[Solved]) -> list[Solved]:
    """Examples whose texts have one answer."""
    answers = {(repr(each.example.reads), each.example.answer) for each in solved}
    counts = Counter(reads for reads, _ in answers)
    return [each for each in solved if counts[repr(each.example.reads)] == 1]


def _answer(node: AskingNode, vote: Vote) -> Any:
    """A vote as an answer of the node: a rating from 0 to 1 is one on its scale."""
    if not isinstance(node, RatingNode):
        return vote if vote in node.exemplary else None
    low, high = node.points.ends
    number = low + float(vote) * (high - low)
    steps = node.points.steps
    if not steps:
        return round(number)
    label = min(steps, key=lambda step: abs(steps[step] - number))
    return label if isinstance(node.scale, Mapping) else int(steps[label])


def pick_examples(
    solved: Iterable[Solved], count: int = 4, *, most_characters: int = 4_000
) -> list[Solved]:
    """A few varied examples, in the order in which a prompt should show them.

    Every answer gets about as many as every other. Cases that the judge gets wrong come before
    others, then those that share the fewest words with what is chosen already (Jaccard), then the
    shorter. All of them together have at most so many characters. Equal input gives equal examples.
    """
    left = sorted(solved, key=lambda candidate: candidate.case)
    chosen: list[Solved] = []
    often: Counter[Any] = Counter()
    room = most_characters
    while len(chosen) < count:
        fitting = [candidate for candidate in left if candidate.size <= room]
        if not fitting:
            break
        answers = dict.fromkeys(candidate.example.answer for candidate in fitting)
        rarest = min(answers, key=lambda answer: (often[answer], str(answer)))
        best = min(
            (candidate for candidate in fitting if candidate.example.answer == rarest),
            key=lambda candidate: (
                not candidate.wrong,
                _likeness(candidate, chosen),
                candidate.size,
                candidate.case,
            ),
        )
        left.remove(best)
        chosen.append(best)
        often[rarest] += 1
        room -= best.size
    return chosen


def _likeness(candidate: Solved, chosen: Sequence[Solved]) -> float:
    """The largest share of words that an example has in common with one of those chosen."""
    words = candidate.words
    shares = (len(words & earlier.words) / (len(words | earlier.words) or 1) for earlier in chosen)
    return max(shares, default=0.0)
