"""How far can a judge be trusted? A judge card of meeting summaries: python benchmark.py [dir]

Everything runs without a model. The summaries are made up, so that their labels are certain. The
judge is simulated, so that its noise is known: it follows the rules of `meeting_summary/judge.py`,
but errs by the chances in NOISE. From the command line, with other cases and any judge:

    dagengine benchmark examples/meeting_summary/metrics.py \
        --data examples/meeting_summary/cases.jsonl --judge examples/benchmark.py:judge \
        --labels additional_metadata.expected_score --store answers.db
"""

import runpy
import sys
from pathlib import Path
from typing import Any

from dagengine.judges import Noise, SimulatedJudge
from dagengine.loading import load_metrics
from dagengine.question import Question
from dagengine.reliability import repeat
from dagengine.reliability.card import card_page, make_card, print_card, write_card
from dagengine.test_case import LLMTestCase

FOLDER = Path(__file__).resolve().parent / "meeting_summary"
RULES = runpy.run_path(str(FOLDER / "judge.py"))
NOISE = {"Headings present": Noise(flip=0.003), "Heading order": Noise(flip=0.006)}
GOOD = ("Intro", "Body", "Conclusion")
BAD = (("Body", "Intro", "Conclusion"), ("Intro", "Body"))


def truth(question: Question[Any]) -> Any:
    """What the rules say: a verdict, or the headings."""
    found = RULES["answer"](question)
    return found["verdict"] if isinstance(found, dict) else found


judge = SimulatedJudge(truth, NOISE, name="heading rules", probabilities=True)


def summary(number: int) -> LLMTestCase:
    """A summary of a meeting; every second has its headings in order."""
    titles = GOOD if number % 2 else BAD[number // 2 % 2]
    return LLMTestCase(
        name=f"meeting {number}",
        input=f"Sum up meeting {number}.",
        actual_output="\n".join(f"# {title} of meeting {number}\nA point." for title in titles),
        additional_metadata={"passes": titles is GOOD},
    )


def main() -> None:
    """Ask about a hundred summaries eight times, and write the card."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    metrics, cases = load_metrics(str(FOLDER / "metrics.py")), [*map(summary, range(100))]
    seen = repeat(cases, metrics, times=8, model=judge)
    labels = "additional_metadata.passes"
    card = make_card(seen, metrics, cases, [judge.durable_identity], labels=labels)
    print_card(card, verbose=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / "card.html").write_text(card_page(card), encoding="utf-8")
    write_card(card, out / "card.json")
    print("card:", out / "card.html")


if __name__ == "__main__":
    main()
