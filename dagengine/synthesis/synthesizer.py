"""`Synthesizer`: goldens from documents, contexts, other goldens, and from scratch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast

from dagengine.configs import check_names
from dagengine.data.dataset_files import save_rows
from dagengine.data.golden import Golden
from dagengine.errors import InputError
from dagengine.estimate.values import Estimate
from dagengine.execution.engine import Settings
from dagengine.execution.evaluation import sync
from dagengine.graph.graph import Metric
from dagengine.results import Totals
from dagengine.synthesis.generators import from_contexts, from_scratch, of_conversations
from dagengine.synthesis.quotas import Context, Filling
from dagengine.synthesis.runs import AnyGolden, Generation, Goldens
from dagengine.synthesis.sources import Sources, contexts_of, sources_of
from dagengine.synthesis.values import (
    ContextConstructionConfig,
    EvolutionConfig,
    Quota,
    Report,
    Seed,
    StylingConfig,
)
from dagengine.test_case import LLMTestCase

# Drafts that one question asks for at most, and how many more than are wanted.
_LIST, _SPARE = 20, 2
_NO_EVOLUTION = EvolutionConfig(num_evolutions=0)

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def _sync_door(
    method: Callable[Concatenate[S, P], Awaitable[R]],
) -> Callable[Concatenate[S, P], R]:
    """The same method for callers without an event loop (it works inside one, too)."""

    @wraps(method)
    def door(self: S, /, *given: P.args, **settings: P.kwargs) -> R:
        return sync(lambda: method(self, *given, **settings))

    door.__name__ = method.__name__.removeprefix("a_")
    return door


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How many goldens, of which sort, and how many of one context at most."""

    quotas: Sequence[Quota]
    per_context: int | None
    drafts: int


class Synthesizer:
    """Makes goldens: drafts are written, evolved, rewritten, and filtered question by question.

    `model` is the judge that writes and checks (see `as_judge`), `second_model` the one that
    answers blind from the contexts and has to agree with the expected output (by default
    `model`), `difficulty_models` are cheap judges that try without the contexts: difficulty is
    the share of them that fail. `generator` is a metric of the caller's own in place of the
    built-in graph (see `synthesis.generators` for what it reads and gives). For each golden at
    most `max_tries` drafts are tried. `seed` decides which passages and evolutions are taken.

    `settings` are those of `Settings`: `limits`, `store`, `on_attempt`, `tracer`. With a store a
    run that was killed goes on where it was. `on_golden` gets every golden when its round is
    over; `show` draws a progress bar; `out` is a folder for the record of the run, in which every
    draft is a case (`dagengine show`).

    `synthetic_goldens` are all goldens of this object, `report` says what became of the drafts
    of the last call. Raises InputError or TypeError for what cannot be meant.
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
        generator: Metric | None = None,
        max_tries: int = 5,
        seed: int = 0,
        on_golden: Callable[[AnyGolden], None] | None = None,
        show: bool = True,
        out: str | Path | None = None,
        **settings: Any,
    ) -> None:
        names = {"limits", "store", "on_attempt", "tracer"}
        check_names("Synthesizer() has no argument", settings, names)
        if isinstance(max_tries, bool) or not isinstance(max_tries, int) or max_tries < 1:
            raise InputError(f"max_tries must be from 1 on, got {max_tries!r}")
        if isinstance(difficulty_models, str):
            raise InputError(f"difficulty_models takes a list: [{difficulty_models!r}]")
        self.model = model
        self.async_mode = async_mode
        self.evolution_config = evolution_config or EvolutionConfig()
        self.styling_config = styling_config or StylingConfig()
        self.second_model = second_model
        self.difficulty_models = tuple(difficulty_models)
        self.generator = generator
        self.max_tries = max_tries
        self.seed = seed
        self.synthetic_goldens: list[AnyGolden] = []
        self.on_golden = on_golden or (lambda golden: None)
        self.show = show
        self.out = out
        self._made: Generation | None = None
        self._settings = cast("Settings", {**settings, "model": model})

    @property
    def report(self) -> Report:
        """What became of the drafts of the last call."""
        return Report() if self._made is None else self._made.report

    @property
    def totals(self) -> Totals:
        """What the last call asked and used."""
        return Totals() if self._made is None else self._made.totals

    # Doors: what goldens are made from.

    async def a_generate_goldens_from_docs(
        self,
        document_paths: Iterable[Any],
        include_expected_output: bool = True,
        max_goldens_per_document: int | None = None,
        max_goldens_per_context: int = 2,
        context_construction_config: ContextConstructionConfig | None = None,
        *,
        quotas: Sequence[Quota] = (),
    ) -> Goldens:
        """Goldens about documents: files, folders, or document objects of other libraries.

        `quotas` say how many there are to be of each document, kind and difficulty; without them
        `max_goldens_per_document`, and without that `max_goldens_per_context` for every passage.
        Raises InputError, before anything is asked, for files that are not there and when no
        document holds a text.
        """
        made = self._from_docs(
            document_paths, include_expected_output, max_goldens_per_document,
            max_goldens_per_context, context_construction_config, quotas,
        )  # fmt: skip
        return await self._run(made)

    def estimate_goldens_from_docs(
        self,
        document_paths: Iterable[Any],
        include_expected_output: bool = True,
        max_goldens_per_document: int | None = None,
        max_goldens_per_context: int = 2,
        context_construction_config: ContextConstructionConfig | None = None,
        *,
        quotas: Sequence[Quota] = (),
    ) -> Estimate:
        """What `generate_goldens_from_docs` asks in its first round; asks nothing.

        Later rounds make up for drafts that fell: with `max_tries` drafts per golden they ask at
        most `max_tries` - 1 times as much again.
        """
        made = self._from_docs(
            document_paths, include_expected_output, max_goldens_per_document,
            max_goldens_per_context, context_construction_config, quotas,
        )  # fmt: skip
        return made.plan(self._settings, at_once=self.async_mode)

    async def a_generate_goldens_from_contexts(
        self,
        contexts: Iterable[Sequence[str]],
        include_expected_output: bool = True,
        max_goldens_per_context: int = 2,
        source_files: Sequence[str] | None = None,
        *,
        quotas: Sequence[Quota] = (),
    ) -> Goldens:
        """Goldens about contexts that are there, each a list of texts."""
        made = self._from_contexts(
            contexts_of(contexts, source_files), include_expected_output, quotas,
            max_goldens_per_context,
        )  # fmt: skip
        return await self._run(made)

    async def a_generate_goldens_from_scratch(
        self,
        subject: str | Sequence[str],
        task: str | None = None,
        output_format: str | None = None,
        num_initial_goldens: int = 10,
        include_expected_output: bool = False,
        *,
        quotas: Sequence[Quota] = (),
    ) -> Goldens:
        """Goldens about a subject (or several topics), without documents.

        `task` says what the application does and `output_format` how an input looks, where
        `styling_config` does not. `num_initial_goldens` are made in all.
        """
        topics = _topics_of(subject)
        style = self.styling_config
        style = style.model_copy(
            update={
                "task": task or style.task,
                "input_format": output_format or style.input_format,
            }
        )
        quotas = quotas or _evenly(topics, num_initial_goldens)
        return await self._run(self._listed(topics, quotas, style, include_expected_output))

    async def a_generate_goldens_from_goldens(
        self,
        goldens: Sequence[Golden],
        max_goldens_per_golden: int = 2,
        include_expected_output: bool = True,
    ) -> Goldens:
        """More goldens like those that are there.

        When all of them have contexts, the new ones are about these contexts; else they are
        inputs of the same kind.
        """
        if not goldens:
            raise InputError("there is no golden to start from")
        if all(golden.context for golden in goldens):
            contexts = contexts_of([golden.context or [] for golden in goldens], None)
            count = max_goldens_per_golden
            made = self._from_contexts(contexts, include_expected_output, (), count)
            return await self._run(made)
        inputs = list(dict.fromkeys(golden.input for golden in goldens))
        quotas = [Quota(max_goldens_per_golden, document=text) for text in inputs]
        style = self.styling_config
        return await self._run(
            self._listed(inputs, quotas, style, include_expected_output, like=True)
        )

    async def a_generate_conversational_goldens_from_docs(
        self,
        document_paths: Iterable[Any],
        max_goldens_per_context: int = 2,
        context_construction_config: ContextConstructionConfig | None = None,
    ) -> Goldens:
        """Conversational goldens (scenario, expected outcome, user) about documents."""
        sources = sources_of(document_paths, context_construction_config)
        return await self._run(self._conversations(sources, max_goldens_per_context))

    async def a_generate_conversational_goldens_from_contexts(
        self,
        contexts: Iterable[Sequence[str]],
        max_goldens_per_context: int = 2,
        source_files: Sequence[str] | None = None,
    ) -> Goldens:
        """Conversational goldens about contexts that are there."""
        sources = contexts_of(contexts, source_files)
        return await self._run(self._conversations(sources, max_goldens_per_context))

    async def a_generate_conversational_goldens_from_scratch(
        self, subject: str | Sequence[str], num_goldens: int = 10
    ) -> Goldens:
        """Conversational goldens about a subject, or several topics."""
        topics = _topics_of(subject)
        drafts = _list_of(num_goldens)
        metric = of_conversations(drafts, self.styling_config, grounded=False)
        quotas = _evenly(topics, num_goldens)
        return await self._run(self._topics(metric, topics, quotas, drafts, _NO_EVOLUTION))

    generate_goldens_from_docs = _sync_door(a_generate_goldens_from_docs)
    generate_goldens_from_contexts = _sync_door(a_generate_goldens_from_contexts)
    generate_goldens_from_scratch = _sync_door(a_generate_goldens_from_scratch)
    generate_goldens_from_goldens = _sync_door(a_generate_goldens_from_goldens)
    generate_conversational_goldens_from_docs = _sync_door(
        a_generate_conversational_goldens_from_docs
    )
    generate_conversational_goldens_from_contexts = _sync_door(
        a_generate_conversational_goldens_from_contexts
    )
    generate_conversational_goldens_from_scratch = _sync_door(
        a_generate_conversational_goldens_from_scratch
    )

    def save_as(
        self,
        file_type: Literal["json", "csv", "jsonl"],
        directory: str | Path,
        file_name: str | None = None,
    ) -> str:
        """Write `synthetic_goldens` into `directory/file_name.file_type`; returns the path.

        Raises InputError where there is nothing to write.
        """
        return str(save_rows(self.synthetic_goldens, (), file_type, directory, file_name))

    # What they share.

    def _from_docs(
        self,
        documents: Iterable[Any],
        expected: bool,
        per_document: int | None,
        per_context: int,
        config: ContextConstructionConfig | None,
        quotas: Sequence[Quota],
    ) -> Generation:
        sources = sources_of(documents, config)
        if not quotas and per_document is not None:
            names = dict.fromkeys(context.source for context in sources.contexts)
            quotas = [Quota(per_document, document=name) for name in names]
        return self._from_contexts(sources, expected, quotas, per_context)

    def _from_contexts(
        self, sources: Sources, expected: bool, quotas: Sequence[Quota], per_context: int
    ) -> Generation:
        if not expected and (self.second_model is not None or self.difficulty_models):
            raise InputError(
                "second_model and difficulty_models compare answers with the expected output: "
                "leave them out, or include_expected_output=False"
            )
        wanted = _wanted(sources, quotas, per_context)
        config = self.evolution_config
        metric = self.generator or from_contexts(
            wanted.drafts, config.num_evolutions, self.styling_config,
            expected=expected, second=self.second_model, cheap=self.difficulty_models,
        )  # fmt: skip
        return self._generation(metric, sources, wanted, config)

    def _conversations(self, sources: Sources, per_context: int) -> Generation:
        wanted = _wanted(sources, (), per_context)
        metric = self.generator or of_conversations(
            wanted.drafts, self.styling_config, grounded=True
        )
        return self._generation(metric, sources, wanted, _NO_EVOLUTION)

    def _listed(
        self,
        topics: Sequence[str],
        quotas: Sequence[Quota],
        style: StylingConfig,
        expected: bool,
        *,
        like: bool = False,
    ) -> Generation:
        config = self.evolution_config
        drafts = _list_of(max(quota.count for quota in quotas))
        metric = self.generator or from_scratch(
            drafts, config.num_evolutions, style, expected=expected, like=like
        )
        return self._topics(metric, topics, quotas, drafts, config)

    def _topics(
        self,
        metric: Metric,
        topics: Sequence[str],
        quotas: Sequence[Quota],
        drafts: int,
        config: EvolutionConfig,
    ) -> Generation:
        """A generation without passages: its questions ask for list after list on each topic."""
        contexts = [Context(topic) for topic in topics]
        most = self.max_tries * max(quota.count for quota in quotas)
        wanted = _Wanted(quotas, None, -(-most // drafts) * drafts)
        made = self._generation(metric, Sources(contexts, Report()), wanted, config)
        made.case = lambda seed: _case_of_a_topic(seed, drafts)
        return made

    def _generation(
        self, metric: Metric, sources: Sources, wanted: _Wanted, config: EvolutionConfig
    ) -> Generation:
        filling = Filling(
            wanted.quotas, sources.contexts, config, drafts=wanted.drafts, tries=self.max_tries,
            seed=self.seed, per_context=wanted.per_context, measured=bool(self.difficulty_models),
        )  # fmt: skip
        report = sources.report
        report.quotas = filling.yields
        return Generation(metric, filling, {"seed": self.seed}, report)

    async def _run(self, made: Generation) -> Goldens:
        found: list[AnyGolden] = []
        self._made = made

        def keep(golden: AnyGolden) -> None:
            found.append(golden)
            self.synthetic_goldens.append(golden)
            self.on_golden(golden)

        await made.run(self._settings, keep, show=self.show, at_once=self.async_mode, out=self.out)
        return Goldens(found, made.report)


def _wanted(sources: Sources, quotas: Sequence[Quota], per_context: int) -> _Wanted:
    if isinstance(per_context, bool) or not isinstance(per_context, int) or per_context < 1:
        raise InputError(f"max_goldens_per_context must be from 1 on, got {per_context!r}")
    given = quotas or [Quota(per_context * len(sources.contexts))]
    return _Wanted(given, per_context, _list_of(per_context))


def _list_of(count: int) -> int:
    """How many drafts one question asks for, when so many goldens are wanted."""
    return min(_LIST, _SPARE * count)


def _topics_of(subject: Any) -> list[str]:
    topics = [subject] if isinstance(subject, str) else list(subject)
    if not topics or not all(isinstance(one, str) and one.strip() for one in topics):
        raise InputError(f"subject must be a text, or a list of texts, got {subject!r:.80}")
    return list(dict.fromkeys(topics))


def _evenly(topics: Sequence[str], count: int) -> list[Quota]:
    """So many goldens over all topics; the first ones get one more where it does not divide."""
    if isinstance(count, bool) or not isinstance(count, int) or count < len(topics):
        raise InputError(f"there must be a golden for each of {len(topics)} topics, got {count!r}")
    each, more = divmod(count, len(topics))
    return [Quota(each + (place < more), document=topic) for place, topic in enumerate(topics)]


def _case_of_a_topic(seed: Seed, drafts: int) -> LLMTestCase:
    """The case of a draft about a topic; each list of drafts has a question of its own."""
    number, draft = divmod(seed.draft, drafts)
    again = f" (list {number + 1}: nothing that lists before it would hold)" if number else ""
    return Generation.case_of(seed, draft, f"{seed.source}{again}")
