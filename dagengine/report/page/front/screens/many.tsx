// Several metrics: how each ended, what fails together, and why each case failed.

import { useState } from "preact/hooks";
import type { Chosen, Many as Together, Part, Run } from "../data/source.ts";
import { Choices, Parts } from "../parts/controls.tsx";
import { Days } from "../parts/days.tsx";
import { useKeys } from "../parts/keys.ts";
import { dataLine, judged, Lines, pointLines, Texts, moreLines } from "../parts/lines.tsx";
import { Announce, chosenNode, Unfinished, useCounts, useEnds, useTitle } from "../parts/screen.tsx";
import { useAnswer, useChosen, usePage } from "../parts/state.ts";
import { Listed } from "../parts/table.tsx";
import { WhereFailed } from "../parts/where.tsx";
import { clicked } from "../parts/address.ts";
import { listed, many, percent, range, score, whole } from "../parts/words.ts";
import { NodePanel } from "../trees/node.tsx";
import { TreeBox } from "../trees/treebox.tsx";

const COLUMNS = [3, 6]; // metrics with a column of their own: beside the reason, and where more are asked for
const SHOWN = 8; // metrics and sets that are listed

export function Many() {
  const { source, filter, place, go } = usePage();
  const { run } = source;
  const together = useAnswer(() => source.many(filter), [source, filter]);
  const all = useAnswer(() => source.many({ metric: filter.metric, parts: [], text: "" }), [source, filter.metric]);
  const chosen = useChosen(together && { failed: together.any, none: together.missing });
  const filtered = filter.parts.length > 0 || filter.text !== "";
  const cases = together && sum(together);
  const title = !together ? "" : filtered ? `${whole(cases!)} of ${many(run.cases, "case")} chosen` : manyHeadline(run, together);
  useTitle(title, run.name);
  useKeys({
    f: () => go({ state: "any" }),
    a: () => go({ state: "all" }),
    Backspace: () => go({ parts: filter.parts.slice(0, -1) }),
  });
  if (!together || !all) return null;
  const ranked = worst(all);
  const front = place.metric === null ? ranked[0]! : filter.metric;
  // A column is worth its room where something is to be seen in it.
  const bad = ranked.filter((i) => all.strips[i]!.failed + all.strips[i]!.none > 0);
  const more = (place.more.columns ?? "").split(",").includes("scores");
  const shown = (bad.length ? bad : ranked).slice(0, COLUMNS[Number(more)]);
  const quiet = ranked.filter((i) => !shown.includes(i)).map((i) => run.metrics[i]!.name);
  return (
    <>
      <div class="head full">
        <div>
          <h1>{all.missing === run.cases && !filtered && <span class="none">⊘ </span>}{title}</h1>
          {filtered ? <Parts /> : <ManyLines run={run} together={together} />}
        </div>
      </div>
      <Days metric={front} />
      <Announce text={`${whole(cases!)} of ${many(run.cases, "case")}`} />
      <div class="body b4">
        <div class="side">
          <ByMetric run={run} together={together} ranked={ranked} front={front} cases={cases!} />
          <FailingTogether run={run} together={together} />
          <Front front={front} />
        </div>
        <Listed chosen={chosen} shown={shown} chips={<Choices of={choices(cases!, together)} chosen={chosen} choose={(state) => go({ state })} />}>
          {quiet.length > 0 && <p class="soft sm">no column: {listed(quiet.slice(0, SHOWN))}{quiet.length > SHOWN && ` and ${whole(quiet.length - SHOWN)} more`}</p>}
        </Listed>
      </div>
    </>
  );
}

/** Cases that a filter leaves: each has one state. */
function sum({ any, missing, passed }: Together): number {
  return any + missing + passed;
}

function manyHeadline(run: Run, { any, missing, strips }: Together): string {
  const of = many(run.cases, "case");
  const start = run.finished ? "" : "Not finished: ";
  const none = missing ? `, ${whole(missing)} ${missing === 1 ? "has" : "have"} no score` : "";
  if (any) return `${start}${whole(any)} of ${of} failed${none}`;
  if (missing === run.cases) return `No case has ${strips.every((strip) => strip.none === run.cases) ? "a score" : "all its scores"}`;
  if (run.metrics.every(({ threshold }) => threshold === null)) return `${start}${of}, ${run.metrics.length} metrics, none with a threshold${none}`;
  return missing ? `${start}No case failed${none}` : `${start}All ${of} passed all ${run.metrics.length} metrics`;
}

function ManyLines({ run, together }: { run: Run; together: Together }) {
  const { source } = usePage();
  const { any, missing, passed, strips } = together;
  const failing = worst(together).filter((i) => strips[i]!.failed > 0);
  const alone = together.together.filter(({ metrics }) => metrics.length === 1).reduce((n, { cases }) => n + cases, 0);
  const lost = strips.reduce((n, strip) => n + strip.none, 0);
  const scored = run.metrics.some(({ threshold }) => threshold !== null) && any + passed > 0;
  return (
    <>
      <Lines lines={[
        ...(scored ? [["result", <>passed all {run.metrics.length} metrics: <b>{whole(passed)} of {whole(any + passed)}</b>{missing > 0 && " with a score"}, {percent(passed, any + passed)} <span class="soft">{range(passed, any + passed)}</span></>] as [string, unknown]] : []),
        ...(failing.length ? [["where", <>
          {failing.slice(0, 3).map((i, place) => <>{place > 0 && ", "}{place ? run.metrics[i]!.name : <b>{run.metrics[i]!.name}</b>} {whole(strips[i]!.failed)}</>)}
          {failing.length > 3 && `, ${many(failing.length - 3, "more metric")}`} · {whole(alone)} of the {whole(any)} failed only one metric
        </>] as [string, unknown]] : []),
        ...(lost ? [["no score", <><span class="none">⊘</span> {many(missing, "case")} {missing === 1 ? "has" : "have"} nothing else wrong · {many(lost, "score")} missing: {
          strips.flatMap(({ none }, i) => (none ? [`${whole(none)} of ${run.metrics[i]!.name}`] : [])).slice(0, 4).join(", ")}</>] as [string, unknown]] : []),
        ...run.metrics.flatMap((metric) => pointLines(metric).map(([, means]) => [`points of ${metric.name}`, means] as [string, unknown])),
        ["judge", judged(run)],
        ["data", dataLine(run)],
        ...moreLines(source),
      ] as [string, preact.ComponentChildren][]} />
      {!run.finished && <Unfinished />}
      <Texts run={run} />
    </>
  );
}

/** All metrics, those that fail most first, then those without scores. */
function worst({ strips }: Together): number[] {
  return strips.map((_, i) => i).sort((a, b) => strips[b]!.failed - strips[a]!.failed || strips[b]!.none - strips[a]!.none);
}

function choices(cases: number, { any, missing, passed }: Together): [Chosen, string, number][] {
  const states: [Chosen, string, number][] = [["any", "✕ Failed", any], ["missing", "⊘ No score", missing], ["passed", "✓ Passed", passed]];
  return [...states.filter(([, , count]) => count > 0), ["all", "All", cases]];
}

interface ByMetricProps {
  run: Run;
  together: Together;
  ranked: number[];
  front: number;
  cases: number;
}

function ByMetric({ run, together, ranked, front, cases }: ByMetricProps) {
  const { go } = usePage();
  const [all, setAll] = useState(false);
  const shown = all ? ranked : ranked.slice(0, SHOWN);
  const share = (count: number) => ({ width: `${(100 * count) / Math.max(1, cases)}%` });
  return (
    <section class="wsec">
      <h2>By metric</h2>
      <table class="bymetric">
        <thead><tr><th>metric</th><th class="num">failed</th><th class="num">no score</th><th class="num">passed</th><th class="barcell">of {whole(cases)}</th><th class="num">mean</th></tr></thead>
        <tbody>
          {shown.map((i) => {
            const { failed, none, passed, mean } = together.strips[i]!;
            return (
              <tr key={i} class={i === front ? "cur" : ""}>
                <th scope="row"><button class="link-b" aria-pressed={i === front} onClick={() => go({ metric: run.metrics[i]!.name, parts: [] })}>{run.metrics[i]!.name}</button></th>
                <td class="num nw">{failed ? <b class="fail">✕ {whole(failed)}</b> : "·"}</td>
                <td class="num">{none ? <span class="none">⊘ {whole(none)}</span> : "·"}</td>
                <td class="num nw">{passed ? `✓ ${whole(passed)}` : "·"}</td>
                <td class="barcell"><span class="share three0" aria-hidden="true"><i class="x" style={share(failed)} /><i class="n" style={share(none)} /><i style={share(passed)} /></span></td>
                <td class="num">{mean === null ? "·" : score(mean)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {shown.length < ranked.length && <button class="link-b sm" onClick={() => setAll(true)}>{whole(ranked.length - shown.length)} more metrics</button>}
    </section>
  );
}

function FailingTogether({ run, together }: { run: Run; together: Together }) {
  const { filter, go } = usePage();
  const [all, setAll] = useState(false);
  const sets = all ? together.together : together.together.slice(0, SHOWN);
  const most = together.together[0]?.cases ?? 1;
  if (!together.together.length) return null;
  return (
    <section class="wsec">
      <h2>Failing together</h2>
      <ul class="where sets">
        {sets.map(({ metrics, cases }) => {
          const key = metrics.map((m) => run.metrics[m]!.name).join(" + ");
          const part: Part = { kind: "set", key, not: false };
          const mine = filter.parts.some((p) => p.kind === "set" && p.key === key);
          return (
            <li key={key}>
              <button aria-pressed={mine} onClick={(event) => go({ parts: clicked(filter.parts, part, event) })}>
                <b class="num">{whole(cases)}</b>
                <span>{setName(run, metrics)}</span>
                <span class="share" aria-hidden="true"><i style={{ width: `${(100 * cases) / most}%` }} /></span>
              </button>
            </li>
          );
        })}
        {sets.length < together.together.length && (
          <li><button onClick={() => setAll(true)}><span /><span class="link">{together.together.length - sets.length} more sets</span></button></li>
        )}
      </ul>
    </section>
  );
}

function setName(run: Run, metrics: number[]): string {
  const names = (of: number[]) => of.map((m) => run.metrics[m]!.name).join(" + ");
  if (metrics.length === run.metrics.length) return `all ${metrics.length}`;
  if (metrics.length === 1) return `only ${names(metrics)}`;
  const rest = run.metrics.map((_, i) => i).filter((i) => !metrics.includes(i));
  return rest.length < metrics.length ? `all but ${names(rest)}` : names(metrics);
}

/** The metric in front: where its cases ended, and its graph when it is asked for. */
function Front({ front }: { front: number }) {
  const { source, filter, place, go } = usePage();
  const metric = source.run.metrics[front]!;
  const of = { ...filter, metric: front };
  const { counts, whole: all, filtered } = useCounts(of);
  const ends = useEnds(of);
  const pick = (part: Part, event: { shiftKey: boolean; altKey: boolean }) =>
    go({ metric: metric.name, parts: clicked(place.metric === metric.name ? filter.parts : [], part, event), state: null });
  if (!counts || !all) return null;
  const node = chosenNode(metric, filter.parts);
  const open = "graph" in place.more;
  const { graph: _, ...closed } = place.more;
  return (
    <>
      <WhereFailed ends={ends} parts={filter.parts} choose={pick} of={metric.name} />
      <p><button class="link-b" aria-expanded={open} onClick={() => go({ more: open ? closed : { ...closed, graph: "1" } }, "replace")}>{open ? "Close its graph" : "Its graph"}: {metric.name}</button></p>
      {open && <TreeBox metric={metric} counts={counts} all={all} filtered={filtered} title={`${metric.name} · its graph`} choose={pick} />}
      {node !== null && <NodePanel metric={metric} counts={all} node={node} parts={filter.parts} choose={pick} />}
    </>
  );
}
