"""How far can a judge be trusted? A judge card of the meeting summaries: python benchmark.py [dir]

The judge here is simulated, so that everything runs without a model and its noise is known: it
follows the rules of `meeting_summary/judge.py`, but errs by the chances in NOISE. The same from
the command line, with any judge:

    dagengine benchmark examples/meeting_summary/metrics.py \
        --data examples/meeting_summary/cases.jsonl --judge examples/benchmark.py:judge \
        --labels additional_metadata.expected_score --store answers.db
"""

import runpy
import sys
from pathlib import Path
from typing import Any

from dagengine.judges import Noise, SimulatedJudge
from dagengine.loading import load_cases, load_metrics
from dagengine.question import Question
from dagengine.reliability import repeat
from dagengine.reliability.card import card_page, make_card, print_card, write_card
from dagengine.test_case import TestCase

FOLDER = Path(__file__).resolve().parent / "meeting_summary"
RULES = runpy.run_path(str(FOLDER / "judge.py"))
NOISE = {"Headings present": Noise(flip=0.04), "Heading order": Noise(flip=0.15, first=0.1)}


def truth(question: Question[Any]) -> Any:
    """What the rules say: a verdict, or the headings."""
    found = RULES["answer"](question)
    return found["verdict"] if isinstance(found, dict) else found


judge = SimulatedJudge(truth, NOISE, name="heading rules", probabilities=True)


def main() -> None:
    """Ask everything ten times in both orders of the verdicts, and write the card."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    metrics = load_metrics(str(FOLDER / "metrics.py"))
    cases = [
        case.model_copy(update={"additional_metadata": {"passes": _expected(case) >= 0.5}})
        for case in load_cases(FOLDER / "cases.jsonl")
    ]
    orders = ("given", "reversed")
    seen = repeat(cases, metrics, times=10, orders=orders, model=judge, top_logprobs=20)
    identity = judge.durable_identity
    card = make_card(seen, metrics, cases, [identity], labels="additional_metadata.passes")
    print_card(card, verbose=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / "card.html").write_text(card_page(card), encoding="utf-8")
    write_card(card, out / "card.json")
    print("card:", out / "card.html")


def _expected(case: TestCase) -> float:
    return float((case.additional_metadata or {})["expected_score"])


if __name__ == "__main__":
    main()
