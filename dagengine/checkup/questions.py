"""The questions of a checkup, and the types of their answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from dagengine.prompts.evidence import Evidence
from dagengine.prompts.instructions import messages_for
from dagengine.question import YES_NO, Decision, FirstMatch, Message, Options, Question
from dagengine.test_case import LLMTestCase

REASON_LENGTH, ITEM_LENGTH, LIST_LENGTH = 200, 20, 3
"""Bounds of answers: characters of a reason, characters of an item, items of a list."""
STORY_TOKENS: Final = 48
"""Tokens of a text that is written to measure the speed."""
_TOP_LOGPROBS = 20
_WHOLE_TEXT = FirstMatch(((r"(?s)(.*)", None),), field="output")  # with a parser no schema is sent


class Verdict(BaseModel):
    """A verdict without a reason."""

    verdict: bool


class Judgement(BaseModel):
    """A reason, then a verdict, as nodes ask for it."""

    reason: Annotated[str, Field(json_schema_extra={"maxLength": REASON_LENGTH})]
    verdict: bool


class Colour(BaseModel):
    """A verdict of which no option answers the question."""

    verdict: Literal["purple", "orange"]


class Months(BaseModel):
    """A list whose bounds are only in the schema: what goes beyond them is read all the same."""

    output: Annotated[
        list[Annotated[str, Field(json_schema_extra={"maxLength": ITEM_LENGTH})]],
        Field(json_schema_extra={"maxItems": LIST_LENGTH}),
    ]


class Ten(BaseModel):
    """The number ten."""

    score: Literal[10]


class Output(BaseModel):
    """A text as it was written."""

    output: str


EASY: Final[tuple[tuple[str, str, bool], ...]] = (
    ("How many days has a week?", "A week has seven days.", True),
    ("What colour is fresh snow?", "Fresh snow is black.", False),
    ("Which animal barks?", "A dog barks.", True),
    ("What is two plus three?", "Two plus three is nine.", False),
    ("In which country is Madrid?", "Madrid is in Spain.", True),
    ("What do bees make?", "Bees make petrol.", False),
    ("What is frozen water called?", "Frozen water is called ice.", True),
    ("How many wheels has a bicycle?", "A bicycle has seven wheels.", False),
    ("What is the opposite of hot?", "The opposite of hot is cold.", True),
    ("In which season do leaves fall?", "Leaves fall in the autumn.", True),
    ("Which planet do we live on?", "We live on Jupiter.", False),
    ("What does a baker sell?", "A baker sells bread.", True),
    ("Which month comes after March?", "After March comes November.", False),
    ("How many legs has a spider?", "A spider has two legs.", False),
    ("When does the sun rise?", "The sun rises in the morning.", True),
    ("What is half of ten?", "Half of ten is five.", True),
    ("Where do fish live?", "Fish live in trees.", False),
    ("What does one use to cut paper?", "One cuts paper with a spoon.", False),
    ("Which sense do ears serve?", "Ears are for hearing.", True),
    ("What is the capital of Italy?", "The capital of Italy is Oslo.", False),
)
"""Questions with an answer, and whether this is right: half of them are."""
_CRITERION = "Is the actual output a correct answer to the input?"


def easy_questions() -> Iterator[tuple[Question[Verdict], bool]]:
    """Every easy question with the verdict that is right."""
    instructions = (
        "You judge one criterion of an evaluation, using the material and what everybody knows.\n\n"
        f"Criterion: {_CRITERION}\n\nThe verdict is true if it is, and false if it is not. Give "
        "the verdict and nothing else."
    )
    for number, (text, output, verdict) in enumerate(EASY, 1):
        evidence = [Evidence("input", text), Evidence("actual output", output)]
        case = LLMTestCase(input=text, actual_output=output)
        fields = (("input", text), ("actual_output", output))
        question = Question(
            messages_for(instructions, evidence),
            Verdict,
            Options(top_logprobs=_TOP_LOGPROBS, max_tokens=40),
            name=f"easy question {number}",
            decision=Decision("predicate", _CRITERION, YES_NO, case, fields),
        )
        yield question, verdict


def judgement() -> Question[Judgement]:
    """A reason and a verdict, as metrics ask for them."""
    text, output, _ = EASY[0]
    instructions = (
        "You judge one criterion of an evaluation, using only the material. First give your "
        f"reason in one short sentence, then your verdict.\n\nCriterion: {_CRITERION}\n\n"
        "The verdict is one of:\n- true\n- false"
    )
    evidence = [Evidence("input", text), Evidence("actual output", output)]
    return _question(messages_for(instructions, evidence), Judgement, "a reason and a verdict", 160)


def off_schema() -> Question[Colour]:
    """A question whose true answer its schema forbids: is the schema enforced, and how early?"""
    messages = _messages("Answer the question.", "What is the capital of France?")
    return _question(messages, Colour, "an answer that the schema forbids", 40, _TOP_LOGPROBS)


def beyond_bounds() -> Question[Months]:
    """A question whose full answer is longer than its schema allows: does the server cut it?"""
    messages = _messages(
        "Write a list.", "For each of the twelve months, write a sentence of ten words about it."
    )
    return _question(messages, Months, "a list beyond its bounds", 90)


def ten() -> Question[Ten]:
    """A question with the answer 10, to count the tokens in which a model writes it."""
    messages = _messages("Answer with a number.", "What is the score? It is ten out of ten: 10.")
    return _question(messages, Ten, "the number 10", 24, _TOP_LOGPROBS)


def yes_or_no() -> Question[Output]:
    """A question for one token and its alternatives; also the shortest call that there is."""
    messages = _messages("Answer with one word: yes or no.", "Is ice cold? Answer yes or no.")
    return _question(messages, Output, "yes or no", 1, _TOP_LOGPROBS)


def one_word() -> Question[Output]:
    """A question that needs no thought; a model that thinks does so all the same."""
    messages = _messages("Answer with one word.", "What is the capital of France?")
    return _question(messages, Output, "one word", 96)


def story(number: int, tokens: int = STORY_TOKENS) -> Question[Output]:
    """A request for a text that goes on until its limit of tokens, another for each `number`."""
    heroes = ("sailor", "gardener", "carpenter", "teacher", "baker", "miller", "painter", "doctor")
    hero = f"{heroes[number % len(heroes)]} number {number + 1}"
    messages = _messages("You write long stories.", f"Write a long story about a {hero}.")
    return _question(messages, Output, "a story", tokens)


PLANTED: Final[tuple[tuple[float, str, str], ...]] = (
    (0.05, "amber", "pelican"),
    (0.50, "violet", "lantern"),
    (0.95, "silver", "orchard"),
)
"""What is hidden in a long text: at which share of it, for which door, and the password."""


def plant_words(text: str) -> str:
    """Put every password into a text, in a sentence of its own at the next end of a word."""
    pieces, start = list[str](), 0
    for share, door, word in PLANTED:
        goal = int(share * len(text))
        # No space after the goal is -1; in a short text the last sentence may end behind the goal.
        offset = max(start, goal, text.find(" ", goal))
        pieces += [text[start:offset], f" The password of the {door} door is {word}. "]
        start = offset
    return "".join([*pieces, text[start:]])


def password(text: str, door: str) -> Question[Output]:
    """A question for the password of a door, behind the text: a server need read it only once."""
    step = f"Which word is the password of the {door} door? Answer with this one word."
    evidence = Evidence("text", text)
    return _question(messages_for(step, [evidence]), Output, f"the {door} password", 16)


def prose(characters: int) -> str:
    """A plain text of about so many characters that hardly repeats itself."""
    draw = random.Random(7)
    goods = ("salt", "wool", "tiles", "copper", "tea", "timber", "glass", "oats")
    towns = ("Ovar", "Tessel", "Bergen", "Sligo", "Varna", "Cadiz", "Malmo", "Brest")
    lines, length = list[str](), 0
    while length < characters:
        origin, target = draw.sample(towns, 2)
        line = (
            f"On day {draw.randrange(1, 366)} the ship {draw.choice('ABCDEFGH')}"
            f"{draw.randrange(10, 99)} carried {draw.randrange(5, 500)} crates of "
            f"{draw.choice(goods)} from {origin} to {target}."
        )
        lines.append(line)
        length += len(line) + 1
    return " ".join(lines)


def _messages(system: str, user: str) -> tuple[Message, ...]:
    return ({"role": "system", "content": system}, {"role": "user", "content": user})


def _question(
    messages: tuple[Message, ...], answer_type: Any, name: str, tokens: int, top_logprobs: int = 0
) -> Question[Any]:
    parser = _WHOLE_TEXT if answer_type is Output else None
    options = Options(top_logprobs=top_logprobs, max_tokens=tokens)
    return Question(messages, answer_type, options, parser, name)
