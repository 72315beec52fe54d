// A sentence first: the headline of a run, and the lines below it.

import type { ComponentChildren } from "preact";
import type { Source } from "../data/engine.ts";
import type { Counts, Draft, End, Metric, Run } from "../data/source.ts";
import { Fragment } from "preact";
import { many, money, moment, percent, range, score, time, whole } from "./words.ts";

/** Terms and what stands to them. */
export function Lines({ lines }: { lines: [string, ComponentChildren][] }) {
  return (
    <dl class="lines">
      {lines.map(([term, said]) => (
        <Fragment key={term}>
          <dt>{term}</dt>
          <dd>{said}</dd>
        </Fragment>
      ))}
    </dl>
  );
}

export function headline(run: Run, counts: Counts): string {
  const { cases, failed, none, plain, scores } = counts;
  if (!cases) return run.finished ? "The run has no cases" : "Not finished: no case so far";
  if (!run.finished) return `Not finished: ${whole(cases)}${run.planned ? ` of ${whole(run.planned)}` : ""} cases so far`;
  if (run.drafts) return rejected(run.drafts, counts);
  if (none === cases) return "No case has a score";
  const missing = none ? `, ${whole(none)} ${none === 1 ? "has" : "have"} no score` : "";
  if (plain) return `${many(cases, "case")}, mean ${score(scores!.mean)}${missing}`;
  if (!failed && !none) return cases === 1 ? "The case passed" : `All ${whole(cases)} cases passed`;
  if (!failed) return `No case failed${missing}`;
  return `${whole(failed)} of ${many(cases, "case")} failed${missing}`;
}

/** What the generator did with drafts; that one repeats another is found out after it. */
function rejected(drafts: Draft[], { cases, failed, none }: Counts): string {
  const later = drafts.filter(({ cause }) => cause).length - failed - none;
  const parts = [`${whole(failed)} of ${many(cases, "draft")} rejected by a node`];
  if (none) parts.push(`${whole(none)} without an answer`);
  if (later > 0) parts.push(`${whole(later)} dropped later`);
  return parts.join(", ");
}

/** What came out: shares, mean, median, spread. */
export function Result({ counts, limit }: { counts: Counts; limit: number | null }) {
  const { passed, failed, cases, none, plain, scores } = counts;
  if (!scores) return <>{whole(none)} of {whole(cases)} without a score. No mean is shown.</>;
  const { mean, median, spread, lowest } = scores;
  return (
    <>
      {!plain && <><b>{whole(passed)} passed{none > 0 && ` of ${whole(passed + failed)} scored`}, {percent(passed, passed + failed)}</b> <span class="soft">{range(passed, passed + failed)}</span> · </>}
      mean {score(mean)}, median {score(median)}
      {spread !== null && <>, spread {score(spread)}</>}
      {passed === cases && <>, lowest {score(lowest)}</>}
      {limit !== null && <span class="soft"> · passes at {limit}</span>}
    </>
  );
}

/** The three largest ends, those without a score among them. */
export function Where({ ends }: { ends: End[] }) {
  const shown = ends.slice(0, 3);
  if (!shown.length) return <>nothing failed</>;
  return (
    <>
      {shown.map((end, i) => (
        <Fragment key={end.key}>
          {i > 0 && ", "}
          {i ? whole(end.cases) : <b>{whole(end.cases)}</b>} {end.state === "none" ? "without a score:" : end.label.includes(" → ") ? (i ? "at" : "end at") : ""}{" "}
          {i ? end.label : <b>{end.label}</b>}
        </Fragment>
      ))}
    </>
  );
}

export function judged(run: Run): string {
  const votes = Math.max(1, ...run.metrics.flatMap((metric) => metric.nodes.map((node) => node.votes)));
  const parts = [run.judges.map((judge) => judge.name).join(", ") || "no judge"];
  if (run.questions !== null) parts.push(many(run.questions, "question"));
  if (run.retried) parts.push(`${whole(run.retried)} asked again`);
  if (votes > 1) parts.push(`up to ${votes} votes`);
  const used = [parts.join(", "), ...run.standings];
  if (run.tokens) used.push(`${whole(run.tokens)} tokens${run.cached ? ` (${percent(run.cached, run.tokens)} from caches)` : ""}`);
  if (run.questions) used.push(money(run.cost));
  if (run.seconds !== null) used.push(time(run.seconds));
  return used.join(" · ");
}

export function dataLine(run: Run): string {
  const nodes = run.metrics.reduce((sum, metric) => sum + metric.nodes.length, 0);
  const parts = [`${run.data ? `${run.data}, ` : ""}${many(run.cases, run.drafts ? "draft" : "case")}`];
  if (run.metricFile) parts.push(nodes > 24 ? `${run.metricFile}, ${nodes} nodes` : run.metricFile);
  parts.push(ending(run));
  if (run.started) parts.push(moment(run.started));
  return parts.join(" · ");
}

/** What the caller says the run was made with, where anything was said; in a file the way to other runs. */
export function moreLines({ run, server }: Source): [string, ComponentChildren][] {
  const lines: [string, ComponentChildren][] = run.settings.length ? [["with", run.settings.map(([name, value]) => `${name} ${value}`).join(" · ")]] : [];
  return server ? lines : [...lines, ["runs", <span class="soft"><code>dagengine view {run.folder} OTHER</code> shows other runs, and what changed</span>]];
}

/** How the run ended, in words. */
function ending(run: Run): string {
  if (run.exit === "interrupted") return "interrupted";
  if (run.exit === "error") return `ended by an error${run.error ? `: ${run.error}` : ""}`;
  return run.finished ? "finished" : "no end was written";
}

/** What this file holds of the texts, when that is not all. */
export function Texts({ run }: { run: Run }) {
  if (run.texts === "some") {
    return (
      <>
        <div class="note m">
          This file contains the texts of {many(run.kept, "case")}, the failed ones first. Those of the other{" "}
          {whole(run.cases - run.kept)} are not in it. Filters, tree and figures are of all {whole(run.cases)} cases.
        </div>
        <code class="cmd">dagengine view {run.folder}</code>
        <p class="soft sm">shows the same page with all texts.</p>
      </>
    );
  }
  return null;
}

const TAGS = 12; // tags of criteria that are listed

/** The points of a rubric before they are clipped, over all cases. */
export function pointLines({ points }: Metric): [string, ComponentChildren][] {
  if (!points?.length) return [];
  const [first, ...tags] = points.map(([name, mean, low, high, cases]) =>
    `${name} ${mean.toFixed(3)}${low === null || high === null ? "" : ` (${low.toFixed(3)} to ${high.toFixed(3)})`}, ${many(cases, "case")}`);
  return [["points", <>{first}{tags.slice(0, TAGS).map((line) => <div key={line} class="soft">{line}</div>)}{tags.length > TAGS && <div class="soft">and {whole(tags.length - TAGS)} more tags</div>}</>]];
}
