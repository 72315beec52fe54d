"""Topic adherence: whether an assistant answers what belongs to its topics, and only that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from dagengine.graph.graph import Graph
from dagengine.graph.node_values import Judgement, NodeValue
from dagengine.metrics.common.default_prompts import ItemQuestion
from dagengine.metrics.common.extraction import fixed_list
from dagengine.metrics.common.prebuilt import MetricSettings, share, texts
from dagengine.metrics.common.turns import ConversationMetric, items_prompt
from dagengine.metrics.conversation_completeness import (
    ConversationCompletenessTemplate,
    intentions_of,
)
from dagengine.test_case import Turn

ON_TOPIC = ItemQuestion(
    "Does the intention, which is that of a user, belong to one of `relevant_topics`? yes: it is "
    "about one of them, or is only courtesy (a greeting, thanks, the wish for a fitting reply), "
    "which belongs to every topic; no: it is about something else.",
    "intention",
)
TAKEN_UP = ItemQuestion(
    "Did the assistant take up this intention of the user? yes: it gave an answer or did something "
    "towards it, in whole or in part; no: it refused, evaded, passed over it, or answered "
    "something else.",
    "intention",
)


class TopicAdherenceTemplate:
    """The prompts of `TopicAdherenceMetric`; override a method to replace one."""

    extract_user_intentions = staticmethod(ConversationCompletenessTemplate.extract_user_intentions)

    @staticmethod
    def generate_topic_verdicts(intentions: list[str], relevant_topics: list[str]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`: on topic?"""
        return ON_TOPIC.prompt(intentions, relevant_topics=relevant_topics)

    @staticmethod
    def generate_answer_verdicts(turns: list[Turn], intentions: list[str]) -> str:
        """Asks for `{"verdicts": {"1": {"reason", "verdict"}, ...}}`: taken up?"""
        return items_prompt(TAKEN_UP, turns, intentions)


class TopicAdherenceMetric(ConversationMetric):
    """The share of the user's intentions that an assistant with given topics treats as it should.

    It should take up what belongs to one of `relevant_topics`, and nothing else (InputError for an
    empty list, TypeError for one text). Reads `turns`; 3 calls in two rounds. Score: (on topic and
    taken up + off topic and not taken up) / intentions, from 0 to 1, and 1 when the user never
    speaks. A case is skipped if the judge lists no intention of a user who does.
    """

    title, template = "Topic Adherence", TopicAdherenceTemplate

    def __init__(
        self,
        relevant_topics: Sequence[str],
        *common: Any,
        **settings: Unpack[MetricSettings],
    ) -> None:
        self.take_common(common, settings)
        self.relevant_topics = texts("relevant_topics", relevant_topics)

    def graph(self) -> Graph:
        intentions = intentions_of(self.wording("extract_user_intentions", "turns"))
        topics = fixed_list(self.relevant_topics, "relevant_topics")
        wording = self.wording("generate_topic_verdicts", "intentions", "relevant_topics")
        on_topic = self.judge_items(ON_TOPIC, intentions, "topic", wording, inputs=[topics])
        wording = self.wording("generate_answer_verdicts", "turns", "intentions")
        taken_up = self.judge_items(TAKEN_UP, intentions, "answer", wording, ["turns"])
        return self.score_graph(adherent_share, [intentions, on_topic, taken_up])


def adherent_share(
    intentions: list[str], on_topic: list[Judgement], taken_up: list[Judgement]
) -> NodeValue:
    """The share of intentions that are taken up if and only if they are on topic."""
    both = [_as_wanted(topic, answer) for topic, answer in zip(on_topic, taken_up, strict=True)]
    what, passed = "user intentions", "treated as the topics want"
    return share(intentions, both, ("yes",), what=what, passed=passed, empty=1.0)


def _as_wanted(topic: Judgement, answer: Judgement) -> Judgement:
    expected = "on topic" if topic.verdict == "yes" else "off topic"
    actual = "taken up" if answer.verdict == "yes" else "not taken up"
    agreement = "yes" if topic.verdict == answer.verdict else "no"
    reason = f"{expected}: {topic.reason} {actual}: {answer.reason}"
    if topic.odds is None and answer.odds is None:
        return Judgement(verdict=agreement, reason=reason)
    # Two questions to one judge: their odds are taken to be independent. A verdict without odds is
    # certain.
    topic_odds, answer_odds = (
        judgement.odds or ((judgement.verdict, 1.0),) for judgement in (topic, answer)
    )
    masses = {"yes": 0.0, "no": 0.0}
    for verdict, mass in topic_odds:
        for second, chance in answer_odds:
            masses["yes" if verdict == second else "no"] += mass * chance
    return Judgement(verdict=agreement, reason=reason, odds=tuple(masses.items()))
