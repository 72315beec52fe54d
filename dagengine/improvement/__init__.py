"""One node made better by people's labels: what to change, whether it helps, and how much."""

from dagengine.improvement.improvement_report import Candidate, Improvement
from dagengine.improvement.rewriters import JudgeRewriter, Rewriter
from dagengine.improvement.search import a_improve, improve
from dagengine.unknown import answer_absent

__all__ = ["Candidate", "Improvement", "JudgeRewriter", "Rewriter", "a_improve", "improve"]

answer_absent(__name__)
