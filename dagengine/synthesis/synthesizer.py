"""`Synthesizer`: goldens from documents, contexts, other goldens, and from scratch."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast

from dagengine.data.dataset_files import save_rows
from dagengine.data.golden import Golden
from dagengine.errors import InputError
from dagengine.estimate.estimate_types import Estimate
from dagengine.execution.interrupts import blocking
from dagengine.execution.local_executor import LocalExecutor, Settings
from dagengine.graph.graph import Metric
from dagengine.judges.embedding import EmbeddingJudge
from dagengine.results import Totals
from dagengine.synthesis.generation import AnyGolden, Generation, Goldens, draft_case
from dagengine.synthesis.generators import from_contexts, from_scratch, of_conversations
from dagengine.synthesis.near_duplicates import ALIKE
from dagengine.synthesis.passages import Sources, document_sources, is_list_like, text_sources
from dagengine.synthesis.quotas import MOST, Context, Filling, drafts_for, evenly, lists_for, up_to
from dagengine.synthesis.synthesis_types import (
    ContextConstructionConfig,
    EvolutionConfig,
    Quota,
    Report,
    Seed,
    StylingConfig,
    whole,
)
from dagengine.system.terminal_text import text_if
from dagengine.test_case import LLMTestCase
from dagengine.unknown import Answering
from dagengine.unknown_arguments import check_names, names_of

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Synthesizer")

# Where settings stand that other tools take as arguments of the generating methods.
_ELSEWHERE = {
    "num_evolutions": "Synthesizer(evolution_config=EvolutionConfig(num_evolutions=…))",
    "evolutions": "Synthesizer(evolution_config=EvolutionConfig(evolutions={…}))",
    "evolution_types": "Synthesizer(evolution_config=EvolutionConfig(evolutions={…}))",
    "chunk_size": "context_construction_config=ContextConstructionConfig(chunk_size=…)",
    "chunk_overlap": "context_construction_config=ContextConstructionConfig(chunk_overlap=…)",
    "max_contexts_per_document": (
        "context_construction_config=ContextConstructionConfig(max_contexts_per_document=…)"
    ),
    "scenario": "Synthesizer(styling_config=StylingConfig(scenario=…))",
    "input_format": "Synthesizer(styling_config=StylingConfig(input_format=…))",
    "expected_output_format": "Synthesizer(styling_config=StylingConfig(…))",
    "model": "Synthesizer(model=…)",
}


def _check_arguments(name: str, settings: Iterable[str], names: Sequence[str]) -> None:
    """Raise TypeError for an argument that a method does not have, naming what it has."""
    for setting in settings:
        if setting not in names and (elsewhere := _ELSEWHERE.get(setting)):
            raise TypeError(f"{name}() has no argument {setting!r}: it is in {elsewhere}")
    check_names(f"{name}() has no argument", settings, names)


def door(
    make: Callable[Concatenate[S, P], Generation],
) -> Callable[Concatenate[S, P], Awaitable[Goldens]]:
    """Run what a method makes; unknown arguments are refused in a sentence."""

    @wraps(make)
    async def call(self: S, /, *given: P.args, **settings: P.kwargs) -> Goldens:
        _check_arguments(make.__name__.removeprefix("a_"), settings, names_of(make))
        made = self._made = make(self, *given, **settings)

        def keep(golden: AnyGolden) -> None:
            self.synthetic_goldens.append(golden)
            self.on_golden(golden)

        await made.run(keep, show=self.show, out=self.out)
        if not made.goldens:  # an empty list by itself would say nothing
            warnings.warn("; ".join(["no golden was made", *made.report.lines()]), stacklevel=1)
        return Goldens(made.goldens, made.report)

    own: Any = call
    own.__signature__ = inspect.signature(make).replace(return_annotation="Goldens")
    return call


def estimate_door(
    method: Callable[Concatenate[S, P], Awaitable[Any]],
) -> Callable[Concatenate[S, P], Estimate]:
    """A `door` that asks nothing; it is called as the method, with `estimate` in the name."""
    make: Any = inspect.unwrap(method)

    def call(self: S, /, *given: P.args, **settings: P.kwargs) -> Estimate:
        """Estimate the first round of the generation with the same arguments; ask nothing.

        Later rounds make up for drafts that fell: with `max_tries` drafts per golden they ask at
        most `max_tries` - 1 times as much again.
        """
        _check_arguments(own.__name__, settings, names_of(make))
        made: Generation = make(self, *given, **settings)
        return made.plan()

    own: Any = call
    own.__name__ = make.__name__.replace("a_generate", "estimate")
    own.__qualname__ = make.__qualname__.replace("a_generate", "estimate")
    own.__signature__ = inspect.signature(make).replace(return_annotation="Estimate")
    return call


def require_kind(name: str, value: Any, kind: type[R]) -> R:
    """The value; raises InputError when it is of another kind."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be of the type {kind.__name__}, got {value!r:.60}")
    return value


def _check_generator(generator: Any, second_model: Any, embedder: Any) -> None:
    """Raise InputError for a generator that is no metric, or that others would judge beside."""
    if generator is None:
        return
    if second_model is not None or embedder is not None:
        raise InputError("your own generator names its judges itself: no second_model, no embedder")
    if not isinstance(generator, Metric):
        raise InputError(f"generator must be a metric, got {generator!r:.60}")


def quotas_of(quotas: Any) -> list[Quota]:
    """The quotas as a list; raises InputError for anything else."""
    listed = isinstance(quotas, Sequence) and not isinstance(quotas, str)
    if not listed or not all(isinstance(quota, Quota) for quota in quotas):
        raise InputError(f"quotas must be a list of Quota(…), got {quotas!r:.60}")
    return list(quotas)


def topics_of(subject: Any) -> list[str]:
    """A subject, or several, each once; raises InputError for something that is not a text."""
    topics: list[Any] = list(subject) if is_list_like(subject) else [subject]
    if not topics or not all(isinstance(topic, str) and topic.strip() for topic in topics):
        raise InputError(f"subject must be a text, or a list of texts, got {subject!r:.80}")
    return list(dict.fromkeys(topics))


_NO_EVOLUTION = EvolutionConfig(num_evolutions=0)
_SETTINGS = ("limits", "store", "on_attempt", "tracer")


class Synthesizer(Answering):
    """Generates goldens: drafts are written, evolved, rewritten, and filtered by one question after
    another.

    `model` is the judge that writes and checks (see `as_judge`). `second_model` (default: `model`)
    answers from the contexts without seeing the expected output, and must agree with it.
    `difficulty_models` are cheap judges that answer without the contexts: difficulty is the share
    of them that fail. `embedder` is an `EmbeddingJudge`, or the name of an embedding model. A
    cosine of `alike` (above 0, at most 1) or more only nominates two inputs as near duplicates:
    `model` is asked whether they ask for the same, and without its yes both stay. Without an
    embedder, only words are compared. `generator` is your own metric instead of the built-in graph
    (see `synthesis.generators` for its inputs and outputs). Each golden gets at most `max_tries`
    drafts. `seed` selects passages and evolutions.

    `settings` are those of `Settings`: `limits`, `store`, `on_attempt`, `tracer`. With a store a
    run that was killed continues where it stopped. `on_golden` receives every golden at the end of
    its round. `show` draws a progress bar. `out` is a folder for the record of the run, in which
    every draft is a case (`dagengine show`).

    `synthetic_goldens` are all goldens of this object. `report` says what happened to the drafts of
    the last call. Raises InputError or TypeError for invalid arguments.
    """

    def __init__(
        self,
        model: Any = None,
        async_mode: bool = True,
        evolution_config: EvolutionConfig | None = None,
        styling_config: StylingConfig | None = None,
        *,
        second_model: Any = None,
        difficulty_models: Sequence[Any] = (),
        embedder: Any = None,
        alike: float = ALIKE,
        generator: Metric | None = None,
        max_tries: int = 5,
        seed: int = 0,
        on_golden: Callable[[AnyGolden], None] | None = None,
        show: bool = True,
        out: str | Path | None = None,
        **settings: Any,
    ) -> None:
        names = names_of(Synthesizer.__init__, _SETTINGS)
        check_names("Synthesizer() has no argument", settings, names)
        _check_generator(generator, second_model, embedder)
        self.model = model
        self.async_mode = async_mode
        evolution = evolution_config or EvolutionConfig()
        self.evolution_config = require_kind("evolution_config", evolution, EvolutionConfig)
        styling = styling_config or StylingConfig()
        self.styling_config = require_kind("styling_config", styling, StylingConfig)
        self.second_model = second_model
        if isinstance(difficulty_models, str) or not isinstance(difficulty_models, Sequence):
            raise InputError(f"difficulty_models takes a list: [{difficulty_models!r:.60}]")
        self.difficulty_models = tuple(difficulty_models)
        if isinstance(alike, bool) or not isinstance(alike, int | float) or not 0 < alike <= 1:
            raise InputError(f"alike must be a number above 0, at most 1, got {alike!r:.60}")
        if on_golden is not None and not callable(on_golden):
            raise InputError(f"on_golden must be a function, got {on_golden!r:.60}")
        self.embedder = EmbeddingJudge(embedder) if isinstance(embedder, str) else embedder
        self.alike = alike
        self.generator = generator
        self.max_tries = whole("max_tries", max_tries, 1)
        self.seed = whole("seed", seed, 0)
        self.synthetic_goldens: list[AnyGolden] = []
        self.on_golden = on_golden or (lambda golden: None)
        self.show = show
        self.out = out
        self._made: Generation | None = None
        self._settings = cast("Settings", {**settings, "model": model})

    @property
    def report(self) -> Report:
        """Report on the drafts of the last call."""
        return Report() if self._made is None else self._made.report

    @property
    def totals(self) -> Totals:
        """Questions and usage of the last call."""
        return Totals() if self._made is None else self._made.engine.totals

    # Doors: what goldens are made from.

    @door
    def a_generate_goldens_from_docs(
        self,
        document_paths: Iterable[Any],
        include_expected_output: bool = True,
        max_goldens_per_document: int | None = None,
        max_goldens_per_context: int = 2,
        context_construction_config: ContextConstructionConfig | None = None,
        *,
        quotas: Sequence[Quota] = (),
    ) -> Generation:
        """Goldens about documents: files, folders, or document objects of other libraries.

        `quotas` say how many there are to be of each document, kind and difficulty; without them
        `max_goldens_per_document`, and without that `max_goldens_per_context` for every passage.
        Raises InputError, before the first call, for files that are not there and when no
        document holds a text.
        """
        config, most = context_construction_config, max_goldens_per_document
        if config is not None:
            require_kind("context_construction_config", config, ContextConstructionConfig)
        if most is not None:
            whole("max_goldens_per_document", most, 1)
            if quotas:
                raise InputError("give quotas or max_goldens_per_document, not both")
        whole("max_goldens_per_context", max_goldens_per_context, 1, MOST)
        sources = document_sources(document_paths, config)
        if most is not None:
            quotas = up_to(most, sources.contexts, max_goldens_per_context)
        return self._from_contexts(
            sources, include_expected_output, quotas, max_goldens_per_context
        )

    @door
    def a_generate_goldens_from_contexts(
        self,
        contexts: Iterable[Sequence[str]],
        include_expected_output: bool = True,
        max_goldens_per_context: int = 2,
        source_files: Sequence[str] | None = None,
        *,
        quotas: Sequence[Quota] = (),
    ) -> Generation:
        """Goldens about contexts that are there, each a list of texts."""
        sources = text_sources(contexts, source_files)
        return self._from_contexts(
            sources, include_expected_output, quotas, max_goldens_per_context
        )

    @door
    def a_generate_goldens_from_scratch(
        self,
        subject: str | Sequence[str],
        task: str | None = None,
        output_format: str | None = None,
        num_initial_goldens: int = 10,
        include_expected_output: bool = False,
        *,
        quotas: Sequence[Quota] = (),
    ) -> Generation:
        """Goldens about a subject (or several topics), without documents.

        `task` says what the application does and `output_format` how an input looks, where
        `styling_config` does not. `num_initial_goldens` are made in all.
        """
        topics, style = topics_of(subject), self.styling_config
        style = replace(
            style, task=task or style.task, input_format=output_format or style.input_format
        )
        quotas = quotas_of(quotas) or evenly(topics, num_initial_goldens, "num_initial_goldens")
        return self._list_goldens(topics, quotas, style, include_expected_output)

    @door
    def a_generate_goldens_from_goldens(
        self,
        goldens: Sequence[Golden],
        max_goldens_per_golden: int = 2,
        include_expected_output: bool = True,
    ) -> Generation:
        """More goldens like those that are there.

        When all of them have contexts, the new ones are about these contexts; else they are
        inputs of the same kind. None of them repeats a golden that is there.
        """
        originals = [require_kind("every one of goldens", golden, Golden) for golden in goldens]
        if not originals:
            raise InputError("there is no golden to start from")
        contexts = [golden.context or [] for golden in originals]
        most = MOST if all(contexts) else math.inf
        count = whole("max_goldens_per_golden", max_goldens_per_golden, 1, most)
        inputs = list(dict.fromkeys(golden.input for golden in originals))
        if all(contexts):
            made = self._from_contexts(
                text_sources(contexts, None), include_expected_output, (), count
            )
        else:
            quotas = [Quota(count, document=text) for text in inputs]
            style = self.styling_config
            made = self._list_goldens(inputs, quotas, style, include_expected_output, like=True)
        made.existing = inputs
        return made

    @door
    def a_generate_conversational_goldens_from_docs(
        self,
        document_paths: Iterable[Any],
        max_goldens_per_context: int = 2,
        context_construction_config: ContextConstructionConfig | None = None,
    ) -> Generation:
        """Conversational goldens (scenario, expected outcome, user) about documents."""
        sources = document_sources(document_paths, context_construction_config)
        return self._conversations(sources, max_goldens_per_context)

    @door
    def a_generate_conversational_goldens_from_contexts(
        self,
        contexts: Iterable[Sequence[str]],
        max_goldens_per_context: int = 2,
        source_files: Sequence[str] | None = None,
    ) -> Generation:
        """Conversational goldens about contexts that are there."""
        return self._conversations(text_sources(contexts, source_files), max_goldens_per_context)

    @door
    def a_generate_conversational_goldens_from_scratch(
        self, subject: str | Sequence[str], num_goldens: int = 10
    ) -> Generation:
        """Conversational goldens about a subject, or several topics."""
        topics = topics_of(subject)
        quotas = evenly(topics, num_goldens, "num_goldens")
        drafts = drafts_for(num_goldens)
        metric = self.generator or of_conversations(
            drafts, self.styling_config, grounded=False, embedder=self.embedder
        )
        return self._about_topics(metric, topics, quotas, _NO_EVOLUTION, drafts)

    estimate_goldens_from_docs = estimate_door(a_generate_goldens_from_docs)
    generate_goldens_from_docs = blocking(a_generate_goldens_from_docs)
    generate_goldens_from_contexts = blocking(a_generate_goldens_from_contexts)
    generate_goldens_from_scratch = blocking(a_generate_goldens_from_scratch)
    generate_goldens_from_goldens = blocking(a_generate_goldens_from_goldens)
    generate_conversational_goldens_from_docs = blocking(
        a_generate_conversational_goldens_from_docs
    )
    generate_conversational_goldens_from_contexts = blocking(
        a_generate_conversational_goldens_from_contexts
    )
    generate_conversational_goldens_from_scratch = blocking(
        a_generate_conversational_goldens_from_scratch
    )

    def save_as(
        self,
        file_type: Literal["json", "csv", "jsonl"],
        directory: str | Path,
        file_name: str | None = None,
    ) -> str:
        """Write `synthetic_goldens` into `directory/file_name.file_type`; returns the path.

        Raises InputError if there is nothing to write.
        """
        return str(save_rows(self.synthetic_goldens, (), file_type, directory, file_name))

    # What they share.

    def _from_contexts(
        self, sources: Sources, expected: bool, quotas: Sequence[Quota], per_context: int
    ) -> Generation:
        """A generation of goldens about contexts."""
        require_kind("include_expected_output", expected, bool)
        if not expected:
            self._no_other_judges("include_expected_output=False")
        quotas, config = quotas_of(quotas), self.evolution_config
        drafts = drafts_for(whole("max_goldens_per_context", per_context, 1, MOST))
        metric = self.generator or from_contexts(
            drafts, config.num_evolutions, self.styling_config, expected=expected,
            second=self.second_model, cheap=self.difficulty_models, embedder=self.embedder,
        )  # fmt: skip
        quotas = quotas or [Quota(per_context * len(sources.contexts))]
        return self._generation(metric, sources, quotas, config, drafts, per_context)

    def _conversations(self, sources: Sources, per_context: int) -> Generation:
        self._no_other_judges("conversations")
        drafts = drafts_for(whole("max_goldens_per_context", per_context, 1, MOST))
        metric = self.generator or of_conversations(
            drafts, self.styling_config, grounded=True, embedder=self.embedder
        )
        quotas = [Quota(per_context * len(sources.contexts))]
        return self._generation(metric, sources, quotas, _NO_EVOLUTION, drafts, per_context)

    def _no_other_judges(self, task: str) -> None:
        if self.second_model is not None or (self.difficulty_models and self.generator is None):
            raise InputError(
                "second_model and difficulty_models compare answers with an expected output from "
                f"contexts: leave them out for {task}"
            )

    def _list_goldens(
        self,
        topics: Sequence[str],
        quotas: Sequence[Quota],
        style: StylingConfig,
        expected: bool,
        *,
        like: bool = False,
    ) -> Generation:
        """A generation of goldens on topics, or `like` inputs."""
        require_kind("include_expected_output", expected, bool)
        config, drafts = self.evolution_config, drafts_for(max(quota.count for quota in quotas))
        metric = self.generator or from_scratch(
            drafts, config.num_evolutions, style, expected=expected, like=like,
            embedder=self.embedder,
        )  # fmt: skip
        return self._about_topics(metric, topics, quotas, config, drafts)

    def _about_topics(
        self,
        metric: Metric,
        topics: Sequence[str],
        quotas: Sequence[Quota],
        config: EvolutionConfig,
        drafts: int,
    ) -> Generation:
        """A generation without passages: its questions ask for list after list on each topic."""

        def case(seed: Seed) -> LLMTestCase:
            number, draft = divmod(seed.draft, drafts)
            again = text_if(
                number, f" (list {number + 1}: nothing that lists before it would hold)"
            )
            return draft_case(seed, draft, f"{seed.source}{again}")

        self._no_other_judges("goldens without contexts")
        sources = Sources([*map(Context, topics)], Report())
        lists = lists_for(quotas, self.max_tries, drafts)
        made = self._generation(metric, sources, quotas, config, drafts * lists)
        made.case = case
        return made

    def _generation(
        self,
        metric: Metric,
        sources: Sources,
        quotas: Sequence[Quota],
        config: EvolutionConfig,
        drafts: int,
        per_context: int | None = None,
    ) -> Generation:
        filling = Filling(
            quotas, sources.contexts, config, drafts=drafts, tries=self.max_tries,
            seed=self.seed, per_context=per_context,
            measured=bool(self.difficulty_models) or self.generator is not None,
        )  # fmt: skip
        sources.report.quotas = filling.yields
        engine = LocalExecutor([metric], self._settings, at_once=self.async_mode)
        note = {"seed": self.seed}
        return Generation(engine, filling, note, sources.report, alike=self.alike)
