"""Every block of code in the published documents, and what becomes of it here.

A block is given by its document and its lines. Three things can become of it:

- "runs": as printed, but for the package's name in its import lines (or in its command);
- "mended": once what is wrong in print is put right; `mends` says all of it;
- "refused": with an error whose message is `why`, or as nothing of ours.

Nothing else is done to a block. `indent` puts the indentation back that one document lost in
print. `after` are blocks of the same page that come before it, `lent` are names that the page
leaves to its reader, `reader` is what the reader would do next (calling a test, say).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from folders.places import SEEDS

# Where the names of an import line are found here.
HOMES = {
    "langchain.evaluation": "dagengine",
    "langchain.prompts": "dagengine",
    "langchain.chains.constitutional_ai.principles": "dagengine.metrics.criteria",
}


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of a document, and its verdict."""

    where: str
    what: str
    verdict: Literal["runs", "mended", "refused"]
    why: str = ""
    mends: tuple[tuple[str, str], ...] = ()
    indent: str | None = None
    after: tuple[str, ...] = ()
    lent: tuple[str, ...] = ()
    reader: str = ""

    @property
    def document(self) -> str:
        return self.where.partition(":")[0]

    def printed(self) -> str:
        """The block as it stands in its document."""
        _, _, span = self.where.partition(":")
        first, last = map(int, span.split("-"))
        (path,) = SEEDS.glob(f"{self.document}_*.txt")
        return "\n".join(path.read_text(encoding="utf-8").splitlines()[first - 1 : last])

    def mended(self) -> str:
        """The block with everything put right that the table names; nothing else is changed."""
        code = self.printed()
        for wrong, right in self.mends:
            assert wrong in code, f"{self.where} does not say {wrong!r}"
            code = code.replace(wrong, right)
        if self.indent is not None:
            code = indented(code, self.indent or "\0")
        return code


def indented(code: str, after: str = "\0") -> str:
    """The code with its indentation put back, up to the line that begins with `after`."""
    out: list[str] = []
    depth = 0
    for line in code.splitlines():
        if line.startswith(after):
            depth = 0
        method = line.startswith(("def ", "async def ", '"""', "# ..."))
        out.append(" " * 4 * max(0, depth - (depth == 2 and method)) + line)
        if not depth and line.startswith(("class ", "def ", "async def ")):
            depth = 2 if line.startswith("class ") else 1
    return "\n".join(out)


def ours(code: str) -> str:
    """The code with our package in its import lines, and in its first decorator or call."""
    lines = [_import(line) if _IMPORT.match(line) else line for line in code.splitlines()]
    return "\n".join(line.replace("@deepeval.", "@dagengine.") for line in lines)


_IMPORT = re.compile(r"(from|import) (deepeval|langchain)\b")


def _import(line: str) -> str:
    for theirs, home in HOMES.items():
        line = line.replace(f"from {theirs} import", f"from {home} import")
    return line.replace("deepeval", "dagengine")


_CASE = ("[...]", "[test_case]")  # dots that stand for cases of the reader's
_SLASHES = (("\\_", "_"),)  # marks of the format that the page was written in
_FIELDS = "000:54-64"  # imports a name that later blocks of the page use
_SETTINGS = ("openai_api_version", "azure_deployment", "azure_endpoint", "openai_api_key")
_KEY = ("<your-openai-api-key>", "any")


def _custom(where: str, what: str, after: str, use: str, use_where: str) -> tuple[Block, Block]:
    """A model of one's own, and the metric that uses it."""
    mends = (
        ("=<your-profile-name>", '="default"'),
        ("=<your-region-name>", '="us-east-1"'),
        ("=<your-bedrock-endpoint>", '="https://bedrock.example"'),
        ("=<your-model-id>", '="claude"'),
    )
    return (
        Block(
            where=where,
            what=what,
            verdict="mended",
            indent=after,
            lent=(*_SETTINGS, "libraries"),
            mends=mends if "bedrock" in use else (),
        ),
        Block(
            where=use_where,
            what=f"{what}, judging",
            verdict="runs",
            after=(where,),
            lent=(*_SETTINGS, "libraries", "test_case"),
            reader="metric.measure(test_case)",
        ),
    )


PYTHON: tuple[Block, ...] = (
    # 000, decision trees
    Block(
        where="000:23-43",
        what="the case of the walkthrough: a comma is missing",
        verdict="mended",
        mends=(('"""\nactual_output=', '""",\nactual_output='),),
    ),
    Block(
        where=_FIELDS,
        what="the criterion as G-Eval: a comma is missing",
        verdict="mended",
        mends=(("]\nevaluation_params", "],\nevaluation_params"),),
    ),
    Block(where="000:103-129", what="the tree", verdict="runs", after=(_FIELDS,)),
    Block(
        where="000:150-154",
        what="the tree as a metric, measured",
        verdict="runs",
        after=("000:23-43", _FIELDS, "000:103-129"),
    ),
    Block(
        where="000:185-186",
        what="the graph by its long name: dots stand for a node",
        verdict="mended",
        mends=(("root_node=...", "root_node=extract_headings_node"),),
        after=(_FIELDS, "000:103-129"),
    ),
    *(
        Block(where=where, what=f"the outline of {name}", verdict="mended", indent="")
        for where, name in (
            ("000:197-204", "TaskNode"),
            ("000:233-239", "BinaryJudgementNode"),
            ("000:270-276", "NonBinaryJudgementNode"),
            ("000:292-296", "VerdictNode"),
        )
    ),
    # 001, metrics with models of one's own
    *_custom("001:128-161", "Azure", "# Replace", "azure_openai", "001:179-182"),
    *_custom("001:191-227", "Mistral", "model = Auto", "mistral_7b", "001:254-257"),
    Block(
        where="001:237-244",
        what="Mistral in a thread",
        verdict="mended",
        indent="",
        after=("001:191-227",),
        lent=("libraries",),
    ),
    *_custom("001:266-313", "Vertex AI", "# Initi", "vertexai_gemini", "001:317-320"),
    *_custom("001:326-361", "Bedrock", "# Replace", "aws_bedrock", "001:365-368"),
    Block(where="001:392-403", what="a case and a metric", verdict="runs"),
    Block(where="001:407-411", what="measured", verdict="runs", after=("001:392-403",)),
    Block(
        where="001:416-420",
        what="asserted",
        verdict="mended",
        indent="",
        after=("001:392-403",),
        reader="test_answer_relevancy()",
    ),
    Block(where="001:425-428", what="evaluated", verdict="runs", after=("001:392-403",)),
    Block(where="001:441-446", what="at once", verdict="runs", after=("001:392-403",)),
    Block(
        where="001:454-468",
        what="several at once",
        verdict="mended",
        indent="asyncio.run",
        lent=("test_case", "metric1", "metric2", "metric3", "metric4"),
    ),
    Block(where="001:474-477", what="verbose", verdict="runs", after=("001:392-403",)),
    # 002, the arena
    Block(
        where="002:21-45",
        what="an arena: a name is not imported, and one is called by another name",
        verdict="mended",
        mends=(
            ("ArenaTestCase, LLMTestCaseParams", "ArenaTestCase, LLMTestCase, LLMTestCaseParams"),
            ("arena_geval = ", "metric = "),
        ),
    ),
    # 003, data sets
    Block(where="003:27-35", what="a data set of cases", verdict="runs"),
    Block(
        where="003:39-43",
        what="a case added",
        verdict="runs",
        after=("003:27-35",),
        lent=("test_case",),
    ),
    Block(
        where="003:48-54",
        what="a data set of goldens: the list is never made",
        verdict="mended",
        mends=(("goldens=goldens", "goldens=[first_golden, second_golden]"),),
    ),
    Block(
        where="003:65-68",
        what="goldens from documents",
        verdict="runs",
        lent=("files",),
    ),
    Block(
        where="003:77-87",
        what="goldens from documents by a synthesizer",
        verdict="runs",
        after=("003:65-68",),
        lent=("files",),
    ),
    Block(
        where="003:98-101",
        what="a data set from a service",
        verdict="refused",
        why="stays on your machine",
    ),
    Block(where="003:111-131", what="from JSON", verdict="runs", lent=("files",)),
    Block(where="003:141-163", what="from CSV", verdict="runs", lent=("files",)),
    Block(
        where="003:178-199",
        what="a data set in a test: pytest is not imported, dots stand for cases",
        verdict="mended",
        mends=(("import deepeval\n", "import deepeval\nimport pytest\n"), _CASE),
        lent=("test_case",),
        reader="test_customer_chatbot(dataset[0])",
    ),
    Block(
        where="003:211-222",
        what="a data set without pytest: dots stand for cases",
        verdict="mended",
        mends=(_CASE,),
        lent=("test_case",),
    ),
    Block(
        where="003:234-239",
        what="a service that judges, by a call that is not Python",
        verdict="refused",
        why="positional argument follows keyword argument",
    ),
    # 003, metrics
    Block(
        where="003:286-289",
        what="cases evaluated: dots stand for them",
        verdict="mended",
        mends=(_CASE,),
        lent=("test_case",),
    ),
    Block(where="003:437-443", what="a case evaluated", verdict="runs"),
    Block(where="003:470-481", what="a case and a metric", verdict="runs"),
    Block(where="003:485-489", what="measured", verdict="runs", after=("003:470-481",)),
    Block(
        where="003:494-498",
        what="asserted",
        verdict="runs",
        after=("003:470-481",),
        reader="test_answer_relevancy()",
    ),
    Block(where="003:504-507", what="evaluated", verdict="runs", after=("003:470-481",)),
    Block(where="003:518-523", what="at once", verdict="runs", after=("003:470-481",)),
    Block(
        where="003:531-545",
        what="several at once",
        verdict="runs",
        lent=("test_case", "metric1", "metric2", "metric3", "metric4"),
    ),
    Block(where="003:550-553", what="verbose", verdict="runs", after=("003:470-481",)),
    Block(
        where="003:571-598",
        what="a prompt of one's own: dots stand for a case",
        verdict="mended",
        mends=(("measure(...)", "measure(test_case)"),),
        lent=("test_case",),
    ),
    Block(where="003:634-647", what="G-Eval by criteria and steps", verdict="runs"),
    Block(
        where="003:666-679",
        what="G-Eval evaluated",
        verdict="runs",
        after=("003:634-647",),
        lent=("evaluate",),
    ),
    Block(
        where="003:684-687",
        what="G-Eval measured",
        verdict="runs",
        after=("003:634-647", "003:666-679"),
        lent=("evaluate",),
    ),
    Block(where="003:752-755", what="a metric of one's own", verdict="runs"),
    Block(
        where="003:773-790",
        what="its constructor: a parameter without a default follows one with a default",
        verdict="mended",
        mends=(("evaluation_model: str,", "evaluation_model: str | None = None,"),),
        reader="CustomMetric(threshold=0.7)",
    ),
    Block(
        where="003:800-804",
        what="several metrics asserted",
        verdict="runs",
        lent=("test_case", "metric1", "metric2"),
        reader="test_multiple_metrics()",
    ),
    Block(
        where="003:815-847",
        what="its measure",
        verdict="runs",
        lent=(
            "test_case",
            "generate_hypothetical_score",
            "generate_hypothetical_reason",
            "async_generate_hypothetical_score",
            "async_generate_hypothetical_reason",
        ),
        reader="import asyncio\nasyncio.run(CustomMetric().a_measure(test_case))\n"
        "assert CustomMetric().measure(test_case) == 0.75",
    ),
    Block(where="003:854-861", what="its measure by another", verdict="runs"),
    Block(where="003:868-878", what="its success", verdict="runs"),
    Block(
        where="003:883-891",
        what="its name",
        verdict="runs",
        reader="assert CustomMetric().__name__ == 'My Custom Metric'",
    ),
    Block(where="003:898-926", what="a ROUGE metric", verdict="runs"),
    Block(
        where="003:935-944", what="a ROUGE metric measured", verdict="runs", after=("003:898-926",)
    ),
    Block(
        where="003:951-1050",
        what="a metric of metrics: five names lack what makes them names of the class",
        verdict="mended",
        mends=(
            ("from deepeval.metrics", "from typing import Optional\nfrom deepeval.metrics"),
            ("= initialize_metrics()", "= self.initialize_metrics()"),
            (" set_score_reason_success(relevancy", " self.set_score_reason_success(relevancy"),
            ("faithfulness_reason.reason", "faithfulness_metric.reason"),
            ("if include_reason:", "if self.include_reason:"),
        ),
    ),
    Block(
        where="003:1055-1062",
        what="a metric of metrics asserted: dots stand for the case's fields",
        verdict="mended",
        mends=(("LLMTestCase(...)", "LLMTestCase(**dict(fields))"),),
        after=("003:951-1050",),
        lent=("fields",),
        reader="test_llm()",
    ),
    # 004, criteria
    *(
        Block(
            where=where,
            what=what,
            verdict="mended" if mends else "runs",
            mends=mends,
            after=after,
            lent=("libraries",),
        )
        for where, what, mends, after in (
            ("004:16-24", "an evaluator", _SLASHES, ()),
            ("004:28-33", "a text evaluated", _SLASHES, ("004:16-24",)),
            ("004:59-68", "with a reference", _SLASHES, ("004:16-24",)),
            ("004:82-86", "the criteria", (), ()),
            ("004:111-137", "criteria of one's own", _SLASHES, ("004:16-24",)),
            ("004:152-156", "the principles", _SLASHES, ()),
            ("004:180-188", "by a principle", _SLASHES, ("004:16-24", "004:152-156")),
            ("004:207-211", "with another model", _SLASHES, ("004:16-24",)),
            (
                "004:215-220",
                "with another model, evaluated",
                _SLASHES,
                ("004:16-24", "004:207-211"),
            ),
            ("004:233-252", "with another prompt", _SLASHES, ("004:16-24",)),
            (
                "004:256-262",
                "with another prompt, evaluated",
                _SLASHES,
                ("004:16-24", "004:233-252"),
            ),
        )
    ),
)

_NO_KEY = "do not pass a key on the command line"
_AZURE = (
    ("<endpoint>", "https://mine.openai.azure.com"),
    ("<api_key>", "secret"),
    ("<deployment_name>", "judge"),
    ("<openai_api_version>", "2024-10-21"),
    ("<model_version>", "1"),
)
_NOTEBOOK = "a line for a notebook"
_SERVICE = "stays on your machine"


def _shell(
    where: str,
    what: str,
    verdict: Literal["runs", "mended", "refused"] = "runs",
    why: str = "",
    mends: tuple[tuple[str, str], ...] = (),
) -> Block:
    return Block(where=where, what=what, verdict=verdict, why=why, mends=mends)


SHELL: tuple[Block, ...] = (
    _shell("001:66-66", "a key", "mended", mends=(_KEY,)),
    _shell("001:70-70", "a key in a notebook", "refused", _NOTEBOOK),
    _shell("001:79-83", "Azure as the judge, its key in plain view", "refused", _NO_KEY, _AZURE),
    _shell("001:87-87", "no longer Azure"),
    _shell(
        "001:100-102",
        "a local judge, its key in plain view",
        "refused",
        _NO_KEY,
        (("<model_name>", "llama3.1"),),
    ),
    _shell("001:108-108", "no longer a local judge"),
    _shell("001:120-120", "tests with a cache and errors left out"),
    _shell("001:391-391", "a key", "mended", mends=(_KEY,)),
    _shell("001:421-421", "tests"),
    _shell("003:172-172", "a service's account", "refused", _SERVICE),
    _shell("003:206-206", "tests in three processes"),
    _shell("003:230-230", "a service's account", "refused", _SERVICE),
    _shell("003:293-293", "a service's account", "refused", _SERVICE),
    _shell("003:337-337", "which metrics fit", "refused", "write `dagengine help metrics`"),
    _shell("003:350-350", "a key", "mended", mends=(_KEY,)),
    _shell("003:354-354", "a key in a notebook", "refused", _NOTEBOOK),
    _shell("003:362-366", "Azure as the judge, its key in plain view", "refused", _NO_KEY, _AZURE),
    _shell("003:370-370", "no longer Azure"),
    _shell("003:376-376", "a server of another program started", "refused", "another program"),
    _shell("003:380-380", "a model of Ollama as the judge"),
    _shell("003:384-385", "a model of Ollama at an address as the judge"),
    _shell("003:389-389", "no longer Ollama"),
    _shell(
        "003:403-405",
        "a local judge, its key in plain view",
        "refused",
        _NO_KEY,
        (("<model_name>", "llama3.1"), ("<api-key>", "secret")),
    ),
    _shell("003:412-412", "no longer a local judge"),
    _shell("003:430-430", "tests with a cache and errors left out"),
    _shell("003:468-468", "a key", "mended", mends=(_KEY,)),
    _shell("003:500-500", "tests"),
    _shell("003:1064-1064", "tests"),
    _shell("004:201-202", "a package and a key in a notebook", "refused", _NOTEBOOK),
)
