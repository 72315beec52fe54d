// One case: its texts, how it was decided, its path.

import { useEffect, useMemo, useState } from "preact/hooks";
import { contestOf, TIE, type Contest } from "../data/contest.ts";
import type { Source } from "../data/engine.ts";
import { words } from "../data/names.ts";
import type { Case, CaseMetric, Draft, Metric, Part, Quote, Said } from "../data/source.ts";
import { useKeys } from "../parts/keys.ts";
import { Marked, marksOf, spanOf, type Mark } from "../parts/marks.tsx";
import { useTitle } from "../parts/screen.tsx";
import { isMany, useAnswer, useChosen, useOrder, usePage, usePick, useStates } from "../parts/state.ts";
import { cursor } from "../parts/table.tsx";
import { Fold, Judged, plain } from "../parts/texts.tsx";
import { moment, money, score, SIGN, STATE, titled, took, whole } from "../parts/words.ts";
import { ContestView, orderWords } from "../trees/contest.tsx";
import { aboutSpans, Criteria, ItemsView, OtherFields, tallied } from "../trees/items.tsx";
import { judgedSteps, mainStep, rubricOf, turnsOf, type JudgedStep } from "../trees/judged.ts";
import { PathList } from "../trees/pathlist.tsx";
import { hasRoom, PathTree } from "../trees/pathtree.tsx";
import { traceOf } from "../trees/spans.ts";
import { firstSpan, spanOfStep, Trace } from "../trees/trace.tsx";
import { Turns } from "../trees/turns.tsx";
import { Steps, Walk } from "../trees/walk.tsx";

export function CaseScreen() {
  const { source, place, filter } = usePage();
  const found = useAnswer(async () => {
    const index = await source.find(place.case ?? "");
    return { shown: index === null ? null : await source.one(index) };
  }, [source, place.case]);
  if (!found) return null;
  if (!found.shown) return <h1>This run has no case {place.case}</h1>;
  // The table may open a case at another metric than the one in front, which keeps its filter.
  const named = source.run.metrics.findIndex((metric) => metric.name === (place.more.under || place.metric));
  return <Shown shown={found.shown} metric={named >= 0 ? named : isMany(source) ? worstFirst(found.shown)[0]! : filter.metric} />;
}

/** The metrics of a case from the worst on, as the table and the command line order them. */
function worstFirst({ metrics }: Case): number[] {
  const rank = { fail: 0, none: 1, pass: 2, plain: 2 };
  const order = ({ state, score }: CaseMetric) => rank[state] * 2 + (score ?? 0);
  return metrics.map((_, i) => i).sort((a, b) => order(metrics[a]!) - order(metrics[b]!));
}

function Shown({ shown, metric: front }: { shown: Case; metric: number }) {
  const { source, go, place } = usePage();
  const metric = source.run.metrics[front]!;
  const result = shown.metrics[front]!;
  const [step, setStep] = useState<number | null>(null);
  const prompts = useAnswer(() => source.prompts(shown.index), [source, shown.index]);
  const neighbours = useNeighbours(shown.index);
  const contest = contestIn(result);
  const turns = turnsOf(shown.fields);
  const judgedLists = useMemo(() => judgedSteps(metric, result, shown.fields), [shown, front]);
  const judged = mainStep(judgedLists);
  const rubric = rubricOf(judgedLists);
  // A list that was judged has a view of its own; one that a tree decided over stays in its walk.
  const listed = judged && !turns && (rubric || result.steps.every(({ verdict }) => verdict === null)) ? judged : null;
  const decided = result.steps.some(({ verdict, kind }) => verdict !== null && kind !== "code");
  const draft = source.run.drafts?.find((one) => one.case === shown.index);
  const title = draft ? titled(draft) : contest ? contestTitle(shown, contest) : headline(shown, result, isMany(source) ? metric.name : null);
  useTitle(title, source.run.name);
  useEffect(() => {
    cursor.index = shown.index;
    const named = metric.nodes.findIndex((node) => node.name === place.step);
    setStep(named >= 0 ? named : result.endNode);
    scrollTo({ top: 0 });
    // Whoever opened the case by a key goes on from its headline.
    if (document.activeElement === document.body || !document.activeElement?.isConnected) document.querySelector<HTMLElement>("h1")?.focus({ preventScroll: true });
  }, [shown, front]);
  const trace = traceOf(shown.fields);
  const span = trace && (trace.find(({ span_id }) => span_id === place.more.span)?.span_id ?? firstSpan(trace, metric, result, shown.fields));
  const chooseSpan = (id: string | null) => id !== null && go({ more: { ...place.more, span: id } }, "replace");
  const chooseStep = (node: number | null) => {
    setStep(node);
    if (trace) chooseSpan(spanOfStep(trace, metric, result, shown.fields, node));
  };
  const open = (name: string | null) => name !== null && go({ case: name, more: { ...place.more, span: "" } }, "replace");
  useKeys({
    j: () => open(neighbours?.next ?? null),
    k: () => open(neighbours?.previous ?? null),
    l: () => source.server && go({ view: "label", case: null, more: { who: source.server.head.who, queue: "one", count: "1", seed: String(shown.index) } }),
    "[": () => foldAll(false),
    "]": () => foldAll(true),
    ...(isMany(source) ? Object.fromEntries(worstFirst(shown).slice(0, 9).map((i, place) => [String(place + 1), () => under(i)])) : {}),
  });
  const under = (metric: number) => go({ step: null, more: { ...place.more, under: source.run.metrics[metric]!.name } }, "replace");
  const spans = trace && (
    <Trace trace={trace} fields={shown.fields} metrics={source.run.metrics} results={shown.metrics} front={front} chosen={span!} choose={chooseSpan}
      show={(i, one) => (i === front ? setStep(one.node) : go({ step: one.name, more: { ...place.more, under: source.run.metrics[i]!.name, span: span! } }, "replace"))} />
  );
  const missing = source.run.texts === "some" ? "its texts are not in this file" : "left out by --no-texts";
  return (
    <>
      <div class="casehead">
        <div>
          <p class="soft sm">
            <a href="#" onClick={(event) => { event.preventDefault(); go({ view: "cases", case: null, step: null, more: { ...place.more, under: "" } }); }}>{neighbours?.word ?? "Cases"}</a>
            {neighbours && neighbours.place >= 0 && ` · ${whole(neighbours.place + 1)} of ${whole(neighbours.total)}`}
          </p>
          <h1 tabIndex={-1} dir={draft && "auto"}>{draft ? <span class={draft.cause ? "fail" : "pass"}>{draft.cause ? "✕" : "✓"} </span> : result.state !== "plain" && <span class={result.state}>{SIGN[result.state]} </span>}{title}</h1>
          {draft ? <Fate draft={draft} /> : <Decision metric={metric} result={result} judged={judged} contest={contest} />}
          {result.steps.filter(({ calls }) => calls).map(({ name, calls }) => <p key={name} class="soft sm">On the way, at {name}: {calls!.words}.</p>)}
        </div>
        <div class="nw steps">
          <button class="btn" disabled={!neighbours?.previous} onClick={() => open(neighbours?.previous ?? null)}><kbd>k</kbd> previous</button>{" "}
          <button class="btn" disabled={!neighbours?.next} onClick={() => open(neighbours?.next ?? null)}>next <kbd>j</kbd></button>
        </div>
      </div>
      {isMany(source) && <Tabs shown={shown} front={front} choose={under} />}
      {contest ? <ContestView shown={shown} contest={contest} /> : turns ? <Turns run={source.run} shown={shown} turns={turns} metric={metric} judged={judged} other={under} /> : listed && (
        <>
          {typeof shown.fields?.input === "string" && <p class="input0" dir="auto"><b class="soft">input</b> {shown.fields.input}</p>}
          {rubric
            ? <div class="rubric">
                <section><Criteria items={rubric} /></section>
                <section>{shown.fields ? <Field name="actual_output" value={shown.fields.actual_output ?? ""} now={false} quotes={rubric.flatMap(({ quotes }) => quotes)} /> : <p class="note m">{missing}</p>}</section>
              </div>
            : <ItemsView metric={metric} result={result} judged={listed} fields={shown.fields} missing={missing} trace={spans} span={span} chooseSpan={chooseSpan} />}
          {spans && !aboutSpans(listed) && spans}
        </>
      )}
      {(contest || listed || (turns && !decided)) && (
        <>
          <Steps metric={metric} result={result} fields={shown.fields} />
          <div class="more0">
            <OtherFields fields={shown.fields} shown={["turns", "contestants", "input", "actual_output", "retrieval_context", ...(trace ? ["spans"] : [])]} />
            {prompts?.[front]?.some((each) => each.length) && (
              <Fold title="prompts as sent">{prompts[front]!.flatMap((each, i) => each.flat().map((message, j) => <div key={`${i} ${j}`} class="prompt" dir="auto"><b>{result.steps[i]?.name} · {message.role}</b>{"\n"}{message.content}</div>))}</Fold>
            )}
            <People said={shown.said.filter((one) => one.metric === metric.name)} />
            <About shown={shown} result={result} />
          </div>
        </>
      )}
      {!(contest || listed || (turns && !decided)) && <div class="case">
        <section class="texts">
          {spans}
          <h2 class={trace ? "" : "vh"}>Texts</h2>
          {turns ? <OtherFields fields={shown.fields} shown={["turns"]} /> : <Texts shown={shown} metric={metric} result={result} step={step} missing={missing} draft={draft} />}
          <About shown={shown} result={result} />
        </section>
        <section>
          <h2>How it was decided</h2>
          <Walk metric={metric} result={result} fields={shown.fields} prompts={prompts?.[front] ?? null} noPrompts={source.run.noPrompts}
            said={shown.said.filter((one) => one.metric === metric.name)} step={step} choose={chooseStep} span={span} chooseSpan={chooseSpan} />
          <People said={shown.said.filter((one) => one.metric === metric.name && !one.node)} />
        </section>
        <aside class="mini">
          {isMany(source) && <Others shown={shown} front={front} choose={under} />}
          <Path metric={metric} result={result} />
        </aside>
      </div>}
    </>
  );
}

/** What people said of the case as a whole. */
function People({ said }: { said: Said[] }) {
  if (!said.length) return null;
  return (
    <>
      <h2 class="h3">People</h2>
      {said.map((one, i) => (
        <p key={i} class="told" dir="auto">
          {one.who}: <b>{one.outcome ?? one.answer ?? "cannot tell"}</b> <span class="soft">{moment(one.when)}{one.note && ` · ${one.note}`}</span>
        </p>
      ))}
    </>
  );
}

function headline(shown: Case, result: CaseMetric, metric: string | null): string {
  const at = metric === null ? "" : ` ${metric}`;
  if (result.score === null) return `${shown.name} has no${at} score`;
  if (result.state === "plain") return `${shown.name}:${at} ${score(result.score)}`;
  return `${shown.name} ${result.state === "fail" ? "failed" : "passed"}${at} with ${score(result.score)}`;
}

/** Whether a draft became a golden, with its answer, or why not. */
function Fate({ draft }: { draft: Draft }) {
  if (!draft.cause) return <p class="decision" dir="auto"><b>Kept.</b> {draft.answer} <span class="soft">{draft.kind}</span></p>;
  return <p class="decision" dir="auto"><b>Dropped: {draft.cause}.</b> {draft.why}{draft.repeats && <>It asks for the same as “{draft.repeats}”</>}</p>;
}

function Decision({ metric, result, judged, contest }: { metric: Metric; result: CaseMetric; judged: JudgedStep | null; contest: Contest | null }) {
  const step = result.steps.find((s) => s.node === result.endNode);
  const why = result.failure?.message ?? step?.reason ?? (result.reason === result.end ? "Decided by code." : result.reason);
  if (contest) return <p class="decision" dir="auto">{contest.reason} <b>{orderWords(contest)}</b></p>;
  if (judged?.items[0]?.criterion && !result.failure) return <p class="decision" dir="auto">{(step?.reason ?? why)?.split("\n").slice(0, 2).map((line) => <>{line}<br /></>)}</p>;
  if (!judged || result.failure || step?.verdict != null) return <p class="decision" dir="auto"><b>{result.end}.</b> {why}</p>;
  const limit = metric.strict ? 1 : metric.threshold;
  // The first line of a reason counts again what stands before it, unless the score is not that share.
  const good = judged.items.filter(({ sign }) => sign !== "fail").length;
  const counted = Math.abs(good / judged.items.length - (result.score ?? NaN)) < 1e-3;
  return <p class="decision" dir="auto"><b>{tallied(metric, judged.items)}.</b> {!counted && why?.split("\n", 1)[0]}{limit !== null && ` Passes at ${limit}.`}</p>;
}

/** The contest that a result ended with; null for any other metric. */
function contestIn(result: CaseMetric): Contest | null {
  return result.steps.reduce<Contest | null>((found, step) => found ?? contestOf(step.output), null);
}

function contestTitle(shown: Case, { winner, ballots }: Contest): string {
  if (winner === TIE) return `${shown.name} is a tie`;
  return `${winner} won ${ballots.filter((ballot) => ballot.winner === winner).length} of ${ballots.length} orders: ${shown.name}`;
}

/** The metrics of a case, the worst first. */
function Tabs({ shown, front, choose }: { shown: Case; front: number; choose: (metric: number) => void }) {
  const { source } = usePage();
  return (
    <nav class="tabs" aria-label="Metrics of this case">
      {worstFirst(shown).map((i) => {
        const { state, score: of, kind } = shown.metrics[i]!;
        const { name, threshold, strict } = source.run.metrics[i]!;
        const limit = strict ? 1 : threshold;
        return (
          <a key={i} href={location.hash} aria-current={i === front ? "page" : undefined} onClick={(event) => { event.preventDefault(); choose(i); }}>
            <span class="one"><span class={`g ${state}`}>{SIGN[state]}</span> {name} <b>{of === null ? "" : score(of)}</b></span>
            <span class="soft sm">{of === null ? words(kind ?? "no score") : state === "fail" && limit !== null ? `passes at ${limit}` : STATE[state]}</span>
          </a>
        );
      })}
    </nav>
  );
}

interface Neighbours {
  word: string;
  place: number;
  total: number;
  previous: string | null;
  next: string | null;
}

/** The cases before and after this one, in the order of the table it was opened from. */
function useNeighbours(index: number): Neighbours | null {
  const { source, filter } = usePage();
  const counts = useStates();
  const chosen = useChosen(counts);
  const order = useOrder();
  return useAnswer(async () => {
    if (!counts) return null;
    let among = chosen;
    let place = await source.place(filter, among, order, index);
    if (place < 0) {
      among = "all"; // opened by a link or a search: its neighbours are those of the whole filter
      place = await source.place(filter, among, order, index);
    }
    const { total, rows } = await source.rows(filter, among, order, Math.max(0, place - 1), place < 0 ? 0 : place + 2);
    const here = rows.findIndex((row) => row.index === index);
    const word = { fail: "Failed", any: "Failed", none: "No score", missing: "No score", pass: "Passed", passed: "Passed", unsure: "Unsure" }[among as string] ?? (source.run.drafts ? "Goldens" : "Cases");
    return { word, place, total, previous: rows[here - 1]?.name ?? null, next: here < 0 ? null : (rows[here + 1]?.name ?? null) };
  }, [source, filter, chosen, order.by, order.down, index, counts]);
}

/** Opens or closes every prompt. */
function foldAll(open: boolean): void {
  for (const fold of document.querySelectorAll<HTMLDetailsElement>(".walk details")) fold.open = open;
}

// Texts.

const TEXTS = ["input", "actual_output", "retrieval_context"]; // of a trace

function Texts({ shown, metric, result, step, missing, draft }: { shown: Case; metric: Metric; result: CaseMetric; step: number | null; missing: string; draft: Draft | undefined }) {
  const { run } = usePage().source;
  if (!shown.fields) {
    return <p class="note m">{missing}{run.texts === "some" && <>: <code>dagengine view {run.folder}</code> shows them</>}</p>;
  }
  const read = readBy(metric, result.steps.map((s) => s.node));
  const now = step === null ? new Set<string>() : readBy(metric, [step]);
  const traced = traceOf(shown.fields) !== null;
  const apart = ["name", "type", ...(traced ? ["spans"] : [])];
  const names = Object.keys(shown.fields).filter((name) => !apart.includes(name) && shown.fields![name] !== null);
  // What a generator is told of a draft is no text to read.
  // Nor are the settings that a case brings.
  const known = names.filter((name) => read.has(name) && name !== "additional_metadata");
  // Where nothing is known to be read, all is open; of a trace, which has the other fields, its texts.
  const first = known.length ? known : traced ? names.filter((name) => TEXTS.includes(name) && shown.fields![name] !== "") : names;
  const rest = traced ? [] : names.filter((name) => !first.includes(name));
  // Those of the step that was chosen; without one, or where it quotes nothing, all of them.
  const own = result.steps.find(({ node }) => node !== null && node === step)?.quotes ?? [];
  const quotes = own.length ? own : result.steps.flatMap((each) => each.quotes);
  return (
    <>
      {first.map((name) => name === "contestants"
        ? <Contestants key={name} value={shown.fields![name] as Record<string, Record<string, unknown>>} now={now.has(name)} />
        : <Field key={name} name={name} value={shown.fields![name]} now={now.has(name)} sentences={draft?.sentences ?? []} quotes={quotes} />)}
      {rest.map((name) => (
        <div key={name} class="field">
          <h3>{name} {!read.has(name) && <span class="light">· not read on this path</span>}</h3>
          <Fold title="show"><Value value={shown.fields![name]} /></Fold>
        </div>
      ))}
      {traced && <div class="field"><OtherFields fields={shown.fields} shown={["spans", ...first]} /></div>}
    </>
  );
}

/** The fields at the beginning of the paths that nodes read. */
function readBy(metric: Metric, nodes: (number | null)[]): Set<string> {
  // The step that is chosen may still be one of the metric before.
  const paths = nodes.flatMap((node) => (node === null ? [] : (metric.nodes[node]?.reads ?? [])));
  return new Set(paths.map((path) => /^[^.[]+/.exec(path)?.[0] ?? path));
}

function Field({ name, value, now, sentences = [], quotes = [] }: { name: string; value: unknown; now: boolean; sentences?: string[]; quotes?: Quote[] }) {
  const items = Array.isArray(value) ? value.length : 0;
  const pieces = piecesOf(name, value);
  const cited = pieces.some(({ piece }) => quotes.some((quote) => quote.piece === piece && quote.places.length));
  return (
    <div class="field">
      <h3>{name}{items > 1 && <span class="light"> · {items} items</span>}</h3>
      {sentences.length && Array.isArray(value)
        ? value.map((piece, i) => <Marked key={i} text={plain(piece)} chosen={null} marks={supporting(plain(piece), sentences)} />)
        : cited
        ? pieces.map(({ text, piece, before }) => <Marked key={piece} text={text} chosen={null} marks={marksOf(text.slice(before), piece, quotes, before)} />)
        : <Value value={value} read={now} />}
    </div>
  );
}

/** The texts of a field as they are shown, with what prompts call them, and what is put before them. */
function piecesOf(name: string, value: unknown): { text: string; piece: string; before: number }[] {
  if (!Array.isArray(value)) return [{ text: plain(value), piece: name, before: 0 }];
  const counts: Record<string, number> = {};
  return value.map((item, i) => {
    const text = spoken(item);
    const role = (item as { role?: string } | null)?.role;
    if (typeof role !== "string") return { text, piece: `${name} (${i + 1} of ${value.length})`, before: 0 };
    counts[role] = (counts[role] ?? 0) + 1;
    return { text, piece: `${role} turn ${counts[role]}`, before: role.length + 2 };
  });
}

/** The places of the sentences that an answer rests on. */
function supporting(text: string, sentences: string[]): Mark[] {
  return sentences.flatMap((sentence, number) => {
    const span = spanOf(text, sentence);
    return span ? [{ span, number, look: "piece on", sign: "", name: "" }] : [];
  });
}

/** Answers of several contestants: what all of them share once, then what each has of its own. */
function Contestants({ value, now }: { value: Record<string, Record<string, unknown>>; now: boolean }) {
  const cases = Object.entries(value);
  const names = [...new Set(cases.flatMap(([, one]) => Object.keys(one)))].filter((name) => !["name", "type"].includes(name));
  const shared = names.filter((name) => cases.length > 1 && new Set(cases.map(([, one]) => JSON.stringify(one[name]))).size === 1);
  return (
    <>
      {shared.map((name) => cases[0]![1][name] != null && <Field key={name} name={`${name}, of all`} value={cases[0]![1][name]} now={now} />)}
      {cases.flatMap(([contestant, one]) => names
        .filter((name) => !shared.includes(name) && one[name] != null)
        .map((name) => <Field key={`${contestant} ${name}`} name={`${contestant}: ${name}`} value={one[name]} now={now} />))}
    </>
  );
}

function Value({ value, read = false }: { value: unknown; read?: boolean }) {
  if (Array.isArray(value) && value.length) {
    return <>{value.map((item, i) => <Judged key={i} text={spoken(item)} read={read} />)}</>;
  }
  return <Judged text={plain(value)} read={read} />;
}

/** A turn of a conversation as `role: content`; anything else as it is. */
function spoken(item: unknown): string {
  const turn = item as { role?: unknown; content?: unknown } | null;
  if (turn && typeof turn === "object" && typeof turn.role === "string" && typeof turn.content === "string") {
    return `${turn.role}: ${turn.content}`;
  }
  return plain(item);
}

function About({ shown, result }: { shown: Case; result: CaseMetric }) {
  const { source } = usePage();
  const [said, setSaid] = useState("");
  const tokens = result.steps.reduce((sum, step) => sum + step.tokens, 0);
  const cost = result.steps.reduce((sum, step) => sum + (step.cost ?? 0), 0);
  const copy = (text: string) => void navigator.clipboard.writeText(text).then(() => setSaid("copied"), () => setSaid("this browser does not allow copying"));
  const json = { case: shown.name, fields: shown.fields, metrics: shown.metrics };
  return (
    <>
      <h3>The case</h3>
      <p class="soft sm">
        {tokens > 0 && <>{whole(tokens)} tokens{cost > 0 && ` · ${money(cost)}`}<br /></>}
        {shown.seconds !== null && <>took {took(shown.seconds)}<br /></>}
        {source.run.data ?? "case"} {whole(shown.index)}{shown.hash && ` · content ${shown.hash}`}<br />
        <button class="link-b" onClick={() => copy(link(source))}>Copy link</button>{" · "}
        <button class="link-b" onClick={() => copy(JSON.stringify(json, null, 2))}>Copy as JSON</button>{" "}
        <span role="status">{said}</span>
      </p>
    </>
  );
}

// The path, and other metrics.

function Path({ metric, result }: { metric: Metric; result: CaseMetric }) {
  const pick = usePick();
  const choose = (part: Part, event: MouseEvent | KeyboardEvent) => pick(part, event);
  const taken = new Set(result.answers);
  if (!metric.layouts.length && !taken.size) return null;
  const drawn = metric.layouts.length > 0 && hasRoom(metric, metric.layouts[0]!);
  return (
    <>
      <h2 class="h3">Its path</h2>
      {drawn
        ? <PathTree metric={metric} layout={metric.layouts[0]!} result={result} choose={choose} />
        : <PathList metric={metric} result={result} choose={choose} />}
      {taken.size > 0 && <p class="soft sm">Click {drawn ? "an edge" : "an answer"}: all cases that took it.</p>}
    </>
  );
}

/** The other metrics of a case: those that failed with their reason, the others as a list. */
function Others({ shown, front, choose }: { shown: Case; front: number; choose: (metric: number) => void }) {
  const { source } = usePage();
  const others = worstFirst(shown).filter((i) => i !== front);
  const link = (i: number) => (
    <button class="link-b" onClick={() => choose(i)}>
      <span class={`g ${shown.metrics[i]!.state}`}>{SIGN[shown.metrics[i]!.state]}</span> {source.run.metrics[i]!.name}{" "}
      {shown.metrics[i]!.score === null ? "no score" : score(shown.metrics[i]!.score!)}
    </button>
  );
  const bad = others.filter((i) => ["fail", "none"].includes(shown.metrics[i]!.state));
  const good = others.filter((i) => !bad.includes(i));
  return (
    <>
      {bad.length > 0 && <h2 class="h3">Also {bad.some((i) => shown.metrics[i]!.state === "fail") ? "failed" : "without a score"}</h2>}
      {bad.map((i) => {
        const result = shown.metrics[i]!;
        const step = result.steps.find((one) => one.node === result.endNode);
        return <div key={i} class="also"><p>{link(i)}</p><p class="two" dir="auto"><b>{result.end}.</b> {(result.failure?.message ?? step?.reason ?? result.reason)?.split("\n", 1)[0]}</p></div>;
      })}
      {good.length > 0 && <><h2 class="h3">{good.some((i) => shown.metrics[i]!.state === "pass") ? "Passed" : "Other metrics"}</h2><ul class="others">{good.map((i) => <li key={i}>{link(i)}</li>)}</ul></>}
    </>
  );
}

/** The address of what is shown. That of a server holds its token, so the file beside the run is named instead. */
function link(source: Source): string {
  return source.server ? `report.html${location.hash}` : location.href;
}
