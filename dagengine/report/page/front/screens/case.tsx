// One case: its texts, how it was decided, its path.

import { useEffect, useState } from "preact/hooks";
import type { Case, CaseMetric, Metric, Part, Said, Source } from "../data/source.ts";
import { useKeys } from "../parts/keys.ts";
import { useTitle } from "../parts/screen.tsx";
import { isMany, useAnswer, useChosen, useOrder, usePage, usePick } from "../parts/state.ts";
import { cursor } from "../parts/table.tsx";
import { Fold, Judged, plain } from "../parts/texts.tsx";
import { moment, money, score, SIGN, took, whole } from "../parts/words.ts";
import { PathList } from "../trees/pathlist.tsx";
import { PathTree } from "../trees/pathtree.tsx";
import { Walk } from "../trees/walk.tsx";

export function CaseScreen() {
  const { source, place, filter } = usePage();
  const found = useAnswer(async () => {
    const index = await source.find(place.case ?? "");
    return { shown: index === null ? null : await source.one(index) };
  }, [source, place.case]);
  if (!found) return null;
  if (!found.shown) return <h1>This run has no case {place.case}</h1>;
  // The table may open a case at another metric than the one in front, which keeps its filter.
  const named = source.run.metrics.findIndex((metric) => metric.name === place.more.under);
  return <Shown shown={found.shown} metric={named < 0 ? filter.metric : named} />;
}

function Shown({ shown, metric: front }: { shown: Case; metric: number }) {
  const { source, go, place } = usePage();
  const metric = source.run.metrics[front]!;
  const result = shown.metrics[front]!;
  const [step, setStep] = useState<number | null>(null);
  const prompts = useAnswer(() => source.prompts(shown.index), [source, shown.index]);
  const neighbours = useNeighbours(shown.index);
  const title = headline(shown, result, isMany(source) ? metric.name : null);
  useTitle(title, source.run.name);
  useEffect(() => {
    cursor.index = shown.index;
    const named = metric.nodes.findIndex((node) => node.name === place.step);
    setStep(named >= 0 ? named : result.endNode);
    scrollTo({ top: 0 });
  }, [shown, front]);
  const open = (name: string | null) => name !== null && go({ case: name }, "replace");
  useKeys({
    j: () => open(neighbours?.next ?? null),
    k: () => open(neighbours?.previous ?? null),
    l: () => source.server && go({ view: "label", case: null, more: { who: source.server.head.who, queue: "one", count: "1", seed: String(shown.index) } }),
    "[": () => foldAll(false),
    "]": () => foldAll(true),
  });
  return (
    <>
      <div class="casehead">
        <div>
          <p class="soft sm">
            <a href="#" onClick={(event) => { event.preventDefault(); go({ view: "cases", case: null, step: null, more: { ...place.more, under: "" } }); }}>{neighbours?.word ?? "Cases"}</a>
            {neighbours && neighbours.place >= 0 && ` · ${whole(neighbours.place + 1)} of ${whole(neighbours.total)}`}
          </p>
          <h1><span class={result.state}>{SIGN[result.state]}</span> {title}</h1>
          <Decision metric={metric} result={result} />
        </div>
        <div class="nw steps">
          <button class="btn" disabled={!neighbours?.previous} onClick={() => open(neighbours?.previous ?? null)}><kbd>k</kbd> previous</button>{" "}
          <button class="btn" disabled={!neighbours?.next} onClick={() => open(neighbours?.next ?? null)}>next <kbd>j</kbd></button>
        </div>
      </div>
      <div class="case">
        <section class="texts">
          <h2 class="vh">Texts</h2>
          <Texts shown={shown} metric={metric} result={result} step={step} />
          <About shown={shown} result={result} />
        </section>
        <section>
          <h2>How it was decided</h2>
          <Walk metric={metric} result={result} prompts={prompts?.[front] ?? null} noPrompts={source.run.noPrompts}
            said={shown.said.filter((one) => one.metric === metric.name)} step={step} choose={setStep} />
          <People said={shown.said.filter((one) => one.metric === metric.name && !one.node)} />
        </section>
        <aside class="mini">
          <Path metric={metric} result={result} />
          {isMany(source) && <Others shown={shown} front={front} />}
        </aside>
      </div>
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

function Decision({ result }: { metric: Metric; result: CaseMetric }) {
  const step = result.steps.find((s) => s.node === result.endNode);
  const why = result.failure?.message ?? step?.reason ?? result.reason;
  return <p class="decision" dir="auto"><b>{result.end}.</b> {why}</p>;
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
  const counts = useAnswer(() => source.counts(filter), [source, filter]);
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
    const word = { fail: "Failed", none: "No score", pass: "Passed", unsure: "Unsure" }[among as string] ?? "Cases";
    return { word, place, total, previous: rows[here - 1]?.name ?? null, next: here < 0 ? null : (rows[here + 1]?.name ?? null) };
  }, [source, filter, chosen, order.by, order.down, index, counts]);
}

/** Opens or closes every prompt. */
function foldAll(open: boolean): void {
  for (const fold of document.querySelectorAll<HTMLDetailsElement>(".walk details")) fold.open = open;
}

// Texts.

function Texts({ shown, metric, result, step }: { shown: Case; metric: Metric; result: CaseMetric; step: number | null }) {
  const { run } = usePage().source;
  if (!shown.fields) {
    const why = run.texts === "some" ? "its texts are not in this file" : "left out by --no-texts";
    return <p class="note m">{why}{run.texts === "some" && <>: <code>dagengine view {run.folder}</code> shows them</>}</p>;
  }
  const read = readBy(metric, result.steps.map((s) => s.node));
  const now = step === null ? new Set<string>() : readBy(metric, [step]);
  const names = Object.keys(shown.fields).filter((name) => !["name", "type"].includes(name) && shown.fields![name] !== null);
  const known = names.filter((name) => read.has(name));
  const first = known.length ? known : names; // where nothing is known to be read, all is open
  const rest = names.filter((name) => !first.includes(name));
  return (
    <>
      {first.map((name) => name === "contestants"
        ? <Contestants key={name} value={shown.fields![name] as Record<string, Record<string, unknown>>} now={now.has(name)} />
        : <Field key={name} name={name} value={shown.fields![name]} now={now.has(name)} />)}
      {rest.map((name) => (
        <div key={name} class="field">
          <h3>{name} <span class="light">· no node of this path read it</span></h3>
          <Fold title="show"><Value value={shown.fields![name]} /></Fold>
        </div>
      ))}
    </>
  );
}

/** The fields at the beginning of the paths that nodes read. */
function readBy(metric: Metric, nodes: (number | null)[]): Set<string> {
  const paths = nodes.flatMap((node) => (node === null ? [] : metric.nodes[node]!.reads));
  return new Set(paths.map((path) => /^[^.[]+/.exec(path)?.[0] ?? path));
}

function Field({ name, value, now }: { name: string; value: unknown; now: boolean }) {
  const items = Array.isArray(value) ? value.length : 0;
  return (
    <div class="field">
      <h3>{name}{items > 1 && <span class="light"> · {items} items</span>}</h3>
      <Value value={value} read={now} />
    </div>
  );
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
  return (
    <>
      <h2 class="h3">Its path</h2>
      {metric.layouts.length > 0 && metric.layouts[0]!.width <= 640
        ? <PathTree metric={metric} layout={metric.layouts[0]!} result={result} choose={choose} />
        : <PathList metric={metric} result={result} choose={choose} />}
      {taken.size > 0 && <p class="soft sm">Click an edge: all cases that took it.</p>}
    </>
  );
}

function Others({ shown, front }: { shown: Case; front: number }) {
  const { source, place, go } = usePage();
  return (
    <>
      <h2 class="h3">Other metrics</h2>
      <ul class="others">
        {shown.metrics.map((result, i) => i !== front && (
          <li key={i}>
            <button class="link-b" onClick={() => go({ step: null, more: { ...place.more, under: source.run.metrics[i]!.name } }, "replace")}>
              <span class={`g ${result.state}`}>{SIGN[result.state]}</span> {source.run.metrics[i]!.name}{" "}
              {result.score === null ? "no score" : score(result.score)}
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

/** The address of what is shown. That of a server holds its token, so the file beside the run is named instead. */
function link(source: Source): string {
  return source.server ? `report.html${location.hash}` : location.href;
}
