// Several metrics: a strip for each, what fails together, a column per metric.

import { useState } from "preact/hooks";
import type { Chosen, Many as Together, Part, Run } from "../data/source.ts";
import { Chart } from "../parts/chart.tsx";
import { Choices, Columns, Footer, Parts } from "../parts/controls.tsx";
import { useKeys } from "../parts/keys.ts";
import { dataLine, judged, Lines, Texts, withLine } from "../parts/lines.tsx";
import { Announce, chosenNode, Unfinished, useCounts, useTitle } from "../parts/screen.tsx";
import { useAnswer, useChosen, useOrder, usePage, usePick } from "../parts/state.ts";
import { Table } from "../parts/table.tsx";
import { many, score, whole } from "../parts/words.ts";
import { NodePanel } from "../trees/node.tsx";
import { TreeBox } from "../trees/treebox.tsx";

const COLUMNS = 12; // more metrics than this: the worst six, and a menu
const WORST = 6;

export function Many() {
  const { source, filter, place, go } = usePage();
  const { run } = source;
  const { counts, whole: all, filtered } = useCounts();
  const together = useAnswer(() => source.many(filter), [source, filter]);
  const chosen = useChosen(null);
  const order = useOrder();
  const pick = usePick();
  const [everything, setEverything] = useState(false);
  const total = useAnswer(async () => (await source.rows(filter, chosen, order, 0, 0)).total, [source, filter, chosen]);
  const title = counts && together && all ? (filtered ? `${whole(counts.cases)} of ${many(all.cases, "case")} chosen` : manyHeadline(run, together)) : "";
  useTitle(title, run.name);
  useKeys({
    f: () => go({ state: "any" }),
    a: () => go({ state: "all" }),
    Backspace: () => go({ parts: filter.parts.slice(0, -1) }),
  });
  if (!counts || !all || !together) return null;
  const metric = run.metrics[filter.metric]!;
  const node = chosenNode(metric, filter.parts);
  const wide = run.metrics.length > COLUMNS && !everything;
  const shown = wide ? worst(together, filter.metric) : run.metrics.map((_, i) => i);
  return (
    <>
      <div class="head full">
        <div>
          <h1>{title}</h1>
          {filtered ? <Parts /> : <ManyLines run={run} together={together} />}
        </div>
      </div>
      <Announce text={`${whole(counts.cases)} of ${many(all.cases, "case")}`} />
      <Strips run={run} together={together} />
      <div class="body b2">
        <div class="side">
          <FailingTogether run={run} together={together} />
          <TreeBox metric={metric} counts={counts} all={all} filtered={filtered} title={`${metric.name} · its graph`} />
          {node !== null && <NodePanel metric={metric} counts={all} node={node} parts={filter.parts} choose={pick} />}
        </div>
        <section class="tsec">
          <Choices of={choices(run, counts.cases, together)} chosen={chosen} choose={(state) => go({ state })} />
          {run.metrics.length > COLUMNS && (
            <p class="chips">
              <button class="chip0" aria-pressed={everything} onClick={() => setEverything(!everything)}>All {run.metrics.length} metrics</button>
            </p>
          )}
          {"columns" in place.more && <Columns />}
          <Table chosen={chosen} order={order} total={total ?? 0} shown={shown} />
          <Footer total={total ?? 0} chosen={chosen} />
        </section>
      </div>
    </>
  );
}

function manyHeadline(run: Run, { any, none, passed }: Together): string {
  const of = many(run.cases, "case");
  const start = run.finished ? "" : "Not finished: ";
  if (any) return `${start}${whole(any)} of ${of} failed at least one of ${run.metrics.length} metrics`;
  if (passed === run.cases) return `${start}All ${of} passed all ${run.metrics.length} metrics`;
  return `${start}No case failed, ${whole(none)} of ${of} have no score`;
}

function ManyLines({ run, together }: { run: Run; together: Together }) {
  const [least] = worst(together, -1);
  const strip = together.strips[least!]!;
  const sets = together.together.slice(0, 2).map(({ metrics, cases }) =>
    `${whole(cases)} ${cases === 1 ? "fails" : "fail"} ${metrics.length === 1 ? "only " : ""}${metrics.map((m) => run.metrics[m]!.name).join(" + ")}`);
  return (
    <>
      <Lines lines={[
        ["result", strip.failed
          ? <>worst: <b>{run.metrics[least!]!.name}</b>, {whole(strip.failed)} of {whole(run.cases)} failed · {whole(together.passed)} passed all {run.metrics.length}{together.none > 0 && ` · ${whole(together.none)} have no score`}</>
          : <>{whole(together.passed)} passed all {run.metrics.length}</>],
        ["where", sets.join(", ") || "nothing failed"],
        ["judge", judged(run)],
        ["data", dataLine(run)],
        ...withLine(run),
      ]} />
      {!run.finished && <Unfinished />}
      <Texts run={run} />
    </>
  );
}

/** The metrics that fail most, the one in front among them. */
function worst({ strips }: Together, front: number): number[] {
  const order = strips.map((_, i) => i).sort((a, b) => strips[b]!.failed - strips[a]!.failed);
  const first = order.slice(0, WORST);
  return front < 0 || first.includes(front) ? first : [...first.slice(0, -1), front];
}

function choices(run: Run, cases: number, { any, every, passed }: Together): [Chosen, string, number][] {
  const of = run.metrics.length;
  const found: [Chosen, string, number][] = [
    ["all", "All", cases], ["every", `Failed all ${of}:`, every], ["passed", "✓ Passed all", passed], ["any", "✕ Failed any", any],
  ];
  return found.filter(([state, , count]) => count > 0 || state === "all");
}

function Strips({ run, together }: { run: Run; together: Together }) {
  const { filter, go } = usePage();
  return (
    <div class="mets">
      {run.metrics.map((metric, i) => {
        const { failed, none, mean, bins } = together.strips[i]!;
        return (
          <button key={metric.name} aria-pressed={i === filter.metric} onClick={() => go({ metric: metric.name, parts: [], sort: `score${i}`, down: false })}>
            <b class="one">{metric.name}</b>
            <span class="bar0">
              <span class="soft">{mean === null ? "no score" : `mean ${score(mean)}`}</span>
              <span>
                {failed > 0 && <b class="fail">✕ {whole(failed)}</b>}
                {none > 0 && <b class="none"> ⊘ {whole(none)}</b>}
              </span>
            </span>
            <Chart metric={metric} bins={bins} height={36} small />
          </button>
        );
      })}
    </div>
  );
}

function FailingTogether({ run, together }: { run: Run; together: Together }) {
  const { filter } = usePage();
  const pick = usePick();
  const [all, setAll] = useState(false);
  const sets = all ? together.together : together.together.slice(0, 8);
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
              <button aria-pressed={mine} onClick={(event) => pick(part, event)}>
                <b class="num">{whole(cases)}</b>
                <span>
                  {run.metrics.length <= COLUMNS && <Dots of={run.metrics.length} on={metrics} />}
                  <span class="soft sm">{setName(run, metrics)}</span>
                </span>
              </button>
            </li>
          );
        })}
        {sets.length < together.together.length && (
          <li><button onClick={() => setAll(true)}><span /><span class="link">{together.together.length - sets.length} more sets</span></button></li>
        )}
      </ul>
      <p class="soft sm">A row is a set of metrics that fail in the same cases. Click it to see them.</p>
    </section>
  );
}

function Dots({ of, on }: { of: number; on: number[] }) {
  return (
    <span class="dots" aria-hidden="true">
      {Array.from({ length: of }, (_, i) => <i key={i} class={on.includes(i) ? "x" : ""} />)}
    </span>
  );
}

function setName(run: Run, metrics: number[]): string {
  const names = (of: number[]) => of.map((m) => run.metrics[m]!.name).join(" + ");
  if (metrics.length === run.metrics.length) return `all ${metrics.length}`;
  if (metrics.length === 1) return `only ${names(metrics)}`;
  const rest = run.metrics.map((_, i) => i).filter((i) => !metrics.includes(i));
  return rest.length < metrics.length ? `all but ${names(rest)}` : names(metrics);
}
