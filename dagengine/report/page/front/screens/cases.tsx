// The overview: a sentence, the tree as the filter, where they failed, the cases.

import type { Counts, End, Metric, Part } from "../data/source.ts";
import { Chart } from "../parts/chart.tsx";
import { useKeys } from "../parts/keys.ts";
import { dataLine, headline, judged, Lines, pointLines, Result, Texts, Where, moreLines } from "../parts/lines.tsx";
import { Chips, Parts } from "../parts/controls.tsx";
import { Days } from "../parts/days.tsx";
import { Announce, chosenNode, Unfinished, useCounts, useEnds, useTitle } from "../parts/screen.tsx";
import { isMany, useChosen, usePage, usePick } from "../parts/state.ts";
import { Listed } from "../parts/table.tsx";
import { WhereFailed } from "../parts/where.tsx";
import { BY_WORDS, many, whole } from "../parts/words.ts";
import { NodePanel } from "../trees/node.tsx";
import { isWide, TreeBox } from "../trees/treebox.tsx";
import { arenaOf } from "../data/contest.ts";
import { Arena } from "./arena.tsx";
import { Goldens } from "./goldens.tsx";
import { Many } from "./many.tsx";

export function Cases() {
  const { source, filter, place } = usePage();
  // Drafts are read as goldens first; any filter shows their way through the generator.
  if (source.run.drafts && !place.state && !filter.parts.length && !filter.text) return <Goldens drafts={source.run.drafts} />;
  if (isMany(source)) return <Many />;
  const metric = source.run.metrics[filter.metric];
  return metric && arenaOf(metric) ? <Arena /> : <Single />;
}

function Single() {
  const { source, filter, go } = usePage();
  const pick = usePick();
  const { counts, whole: all, filtered } = useCounts();
  const ends = useEnds();
  const chosen = useChosen(counts);
  const metric = source.run.metrics[filter.metric];
  const title = counts ? (filtered ? filteredHeadline(filter.parts, filter.text, counts, all) : headline(source.run, counts)) : "";
  useTitle(title, source.run.name);
  useKeys({
    f: () => go({ state: "fail" }),
    a: () => go({ state: "all" }),
    Backspace: () => go({ parts: filter.parts.slice(0, -1) }),
  });
  if (!counts || !all || !metric) return <p class="soft">{metric ? "" : "This run has no metric."}</p>;
  const node = chosenNode(metric, filter.parts);
  const pressed = (bin: string) => filter.parts.some((part) => part.kind === "b" && part.key === bin);
  return (
    <>
      <div class="head">
        <div>
          <h1>{all.none === all.cases && all.cases > 0 && !filtered && <span class="none">⊘ </span>}{title}</h1>
          {filtered ? <Parts /> : <Summary metric={metric} counts={counts} ends={ends} />}
          {source.run.drafts && <p class="sm"><button class="link-b" onClick={() => go({ state: null, parts: [], text: "" })}>Kept and dropped beside each other</button></p>}
        </div>
        {counts.scores && (
          <div>
            <div class="bar0">
              <h2 class="h3">Scores of {metric.name}</h2>
              {counts.failed > 0 && <span class="soft sm">hatched: failed</span>}
            </div>
            <Chart metric={metric} bins={counts.bins} height={filtered ? 60 : 84} pressed={pressed}
              pick={(key, event) => pick({ kind: "b", key, not: false }, event)} />
          </div>
        )}
      </div>
      <Days metric={filter.metric} />
      <Announce text={`${whole(counts.cases)} of ${many(all.cases, "case")}`} />
      {counts.cases === 0 && filtered ? <NothingMatches metric={metric} parts={filter.parts} all={all} /> : (
        <div class={`body three${isWide(metric) ? " broad" : ""}`}>
          <TreeBox metric={metric} counts={counts} all={all} filtered={filtered} />
          {node === null
            ? <WhereFailed ends={ends} parts={filter.parts} choose={pick} />
            : <NodePanel metric={metric} counts={all} node={node} parts={filter.parts} choose={pick} />}
          <Listed chosen={chosen} shown={[filter.metric]} chips={<Chips counts={counts} chosen={chosen} />} titled={filtered} />
        </div>
      )}
    </>
  );
}

function Summary({ metric, counts, ends }: { metric: Metric; counts: Counts; ends: End[] }) {
  const { source } = usePage();
  const { run } = source;
  const limit = metric.strict ? 1 : metric.threshold;
  if (counts.none === counts.cases && counts.cases > 0) return <NothingScored ends={ends} />;
  return (
    <>
      <Lines lines={[
        ["result", <Result counts={counts} limit={limit} />],
        // Without a threshold nothing can fail, and nothing is said of it.
        ...(ends.length || !counts.plain ? [["where", <Where ends={ends} />] as [string, preact.ComponentChildren]] : []),
        ...pointLines(metric),
        ["judge", judged(run)],
        ["data", <>{dataLine(run)}{overBudget(ends)}</>],
        ...moreLines(source),
      ]} />
      {!run.finished && <Unfinished />}
      <Texts run={run} />
    </>
  );
}

/** How many cases the end of the budget left without a score. */
function overBudget(ends: End[]): string {
  const cases = ends.filter(({ state, label }) => state === "none" && label.endsWith(": over budget")).reduce((sum, end) => sum + end.cases, 0);
  return cases ? ` · the budget ended before ${many(cases, "case")}` : "";
}

function NothingScored({ ends }: { ends: End[] }) {
  const { run } = usePage().source;
  return (
    <>
      <Lines lines={[
        ["result", <>{whole(run.cases)} of {whole(run.cases)} without a score. No mean is shown.</>],
        ["why", ends.slice(0, 3).map((end) => (
          <div key={end.key}><b>{whole(end.cases)} × {end.label}</b><br /><span class="soft">“{end.why}”</span></div>
        ))],
        ["judge", judged(run)],
        ["data", dataLine(run)],
      ]} />
      <div class="note">Nothing was judged. With the cause mended, the same command asks again what has no answer.</div>
      {run.command && <code class="cmd">{run.command}</code>}
    </>
  );
}

function NothingMatches({ metric, parts, all }: { metric: Metric; parts: Part[]; all: Counts }) {
  const { go, filter, source } = usePage();
  const why = excluded(metric, parts) ?? (filter.text && !parts.length
    ? `No text, reason or name holds “${filter.text}”.${source.byWords ? ` ${BY_WORDS}.` : ""}`
    : `None of the ${many(all.cases, "case")} meets all of it.`);
  return (
    <div class="nothing">
      <p>{why}</p>
      <p class="chips">
        {parts.length > 0 && <button class="btn" onClick={() => go({ parts: parts.slice(0, -1) })}>Take out the last one <kbd>Backspace</kbd></button>}
        <button class="btn quiet" onClick={() => go({ parts: [], text: "" })}>Clear all <kbd>Esc</kbd></button>
      </p>
    </div>
  );
}

/** Why no path has two answers, when the graph knows: they are two answers of one node, or one ends before. */
function excluded(metric: Metric, parts: Part[]): string | null {
  const edges = parts.filter((part) => part.kind === "e" && !part.not).map((part) =>
    metric.answers.findIndex((a) => `${metric.nodes[a.node]!.name}:${a.verdict}` === part.key));
  for (const one of edges) {
    for (const other of edges) {
      if (one === other) continue;
      const [a, b] = [metric.answers[one]!, metric.answers[other]!];
      const name = (answer: typeof a) => `${metric.nodes[answer.node]!.name} → ${answer.verdict}`;
      if (a.node === b.node) return `No path has both edges: ${name(a)} and ${name(b)} are two answers of one node.`;
      if (leads(metric, a.node, b.node) && !(a.to !== null && (a.to === b.node || leads(metric, a.to, b.node)))) {
        return `No path has both edges: ${name(a)} ends before ${metric.nodes[b.node]!.name}.`;
      }
    }
  }
  return null;
}

function leads(metric: Metric, from: number, to: number, seen = new Set<number>()): boolean {
  if (seen.has(from)) return false;
  seen.add(from);
  return metric.answers.some((a) => a.node === from && a.to !== null && (a.to === to || leads(metric, a.to, to, seen)));
}

function filteredHeadline(parts: Part[], text: string, counts: Counts, all: Counts | null): string {
  const of = `${whole(counts.cases)} of ${many(all?.cases ?? 0, "case")}`;
  if (!counts.cases) return "No case matches";
  const [first] = parts;
  if (parts.length === 1 && !text && first && !first.not) {
    const name = first.key.replace(":", " → ");
    if (first.kind === "e") return `${of} went through ${name}`;
    if (first.kind === "n") return `${of} reached ${name}`;
    if (first.kind === "end") return `${of} ended at ${first.key}`;
    if (first.kind === "day") return `${of} are of ${first.key}`;
    if (first.kind === "stratum") return `${of} are in the stratum ${first.key}`;
    if (first.kind === "b") return `${of} scored about ${first.key}`;
    return `${of} failed ${first.key} and nothing else`;
  }
  if (!parts.length) return `${of} ${counts.cases === 1 ? "holds" : "hold"} “${text}”`;
  return `${of} meet all of these`;
}
