// All runs: whether it got better, the pass rate of each metric from run to run, and what each run changed.

import type { History, OtherRun, Rate } from "../data/server.ts";
import { useKeys } from "../parts/keys.ts";
import { Lines } from "../parts/lines.tsx";
import { useTitle } from "../parts/screen.tsx";
import { useAnswer, usePage } from "../parts/state.ts";
import { many, moment, money, whole } from "../parts/words.ts";

const COMPARED = 30; // runs whose change is told
const STRIPS = 8; // metrics whose history is drawn

export function Home() {
  const { source, go } = usePage();
  const server = source.server!;
  const history = useAnswer(() => server.runs(), [server]);
  const newest = history?.runs.findLast((run) => run.finished) ?? history?.runs.at(-1);
  const before = newest && history ? runBefore(history.runs, newest) : null;
  const found = useAnswer(async () => (newest && before ? await server.changes(before.run, newest.run) : null), [server, newest?.run, before?.run]);
  const moved = newest && mostMoved(newest, before);
  const change = found?.metrics.find(({ metric }) => metric === moved?.now.metric) ?? null;
  const title = newest ? headline(newest, moved ?? null) : "";
  useTitle(title, "Runs");
  useKeys({ d: () => newest && before && go({ view: "diff", more: { old: before.name, new: newest.name } }) });
  if (!history || !newest) return null;
  const spent = history.runs.reduce((sum, run) => sum + (run.cost ?? 0), 0);
  return (
    <>
      <h1>{title}</h1>
      <Lines lines={[
        ["newest", <><a href={`../${newest.run}/`}>{newest.name}</a>, {moment(newest.started)} · {passedWords(newest)}</>],
        ["change", change ? <>{change.headline}{change.flips > 0 && change.test && (change.test.chance ? "; could be chance" : "; more than chance")} · <a href={`#v=diff&old=${encodeURIComponent(before!.name)}&new=${encodeURIComponent(newest.name)}`}>compare</a></>
          : before ? "…" : "the first run of these cases under this metric"],
        ["cost", `${money(spent || null)} for ${many(history.runs.length, "run")}`],
        ...(history.broken.length ? [["folders", <span class="none">⊘ {many(history.broken.length, "folder")} cannot be read</span>] as [string, preact.ComponentChildren]] : []),
      ]} />
      <Strips runs={history.runs} />
      <Runs history={history} />
    </>
  );
}

/** The last run before one that has a metric and a case in common with it. */
export function runBefore(runs: OtherRun[], run: OtherRun): OtherRun | null {
  return runs.findLast((other) => other.run < run.run && run.comparable.includes(other.run)) ?? null;
}

/** The metric whose pass rate moved most since the run before; without one the first. */
function mostMoved(run: OtherRun, before: OtherRun | null): { now: Rate; old: Rate | null } | null {
  const pairs = run.rates.flatMap((now) => (now.share ? [{ now, old: before?.rates.find(({ metric, share }) => metric === now.metric && share) ?? null }] : []));
  const by = ({ now, old }: { now: Rate; old: Rate | null }) => (old ? Math.abs(now.share![0] - old.share![0]) : -1);
  return pairs.sort((a, b) => by(b) - by(a))[0] ?? null;
}

function headline(run: OtherRun, moved: { now: Rate; old: Rate | null } | null): string {
  if (!moved) return `${run.name}: ${many(run.cases, "case")}, nothing that passes or fails`;
  const { now, old } = moved;
  const points = old ? Math.round(100 * now.share![0]) - Math.round(100 * old.share![0]) : 0;
  const than = !old ? ", first run of this data" : old.no_score !== now.no_score ? " of the cases with a score, which are others than in the run before" : points ? `, ${Math.abs(points)} ${Math.abs(points) === 1 ? "point" : "points"} ${points > 0 ? "more" : "fewer"} than the run before` : ", as before";
  return `${now.metric}: ${Math.round(100 * now.share![0])} % pass${than}${without(now)}`;
}

function passedWords(run: OtherRun): string {
  return run.passed === null || run.failed === null ? many(run.cases, "case") : `${whole(run.passed)} of ${many(run.passed + run.failed, "scored case")} passed${run.no_score ? `; ${whole(run.no_score)} without a score` : ""}`;
}

/** Cases that a pass rate leaves out, said beside it. */
function without({ no_score }: Rate): string {
  return no_score ? `; ${whole(no_score)} without a score` : "";
}

/** A line for each metric, with 95 % intervals; cut where the cases change, a diamond where the definition does. */
function Strips({ runs }: { runs: OtherRun[] }) {
  const names = [...new Set(runs.flatMap(({ rates }) => rates.filter(({ share }) => share).map(({ metric }) => metric)))];
  if (!names.length) return null;
  return (
    <section class="wsec">
      <h2>Pass rate, run after run <span class="light sm">bar: 95 % interval · ◇ the definition changed · dotted: other cases</span></h2>
      <div class="strips">{names.slice(0, STRIPS).map((name) => <Strip key={name} name={name} runs={runs} />)}</div>
      {names.length > STRIPS && <p class="soft sm">{many(names.length - STRIPS, "more metric")}</p>}
    </section>
  );
}

function Strip({ name, runs }: { name: string; runs: OtherRun[] }) {
  const points = runs.flatMap((run) => run.rates.flatMap((rate) => (rate.metric === name && rate.share ? [{ run, rate, share: rate.share }] : [])));
  const [wide, high, edge] = [260, 64, 12];
  const x = (i: number) => (points.length < 2 ? wide - edge : edge + (i * (wide - 2 * edge)) / (points.length - 1));
  const y = (share: number) => 7 + (1 - share) * (high - 14);
  const last = points.at(-1)!;
  return (
    <div>
      <p class="bar0"><b class="one">{name}</b> <span class="soft nw">{many(points.length, "run")} · {Math.round(100 * last.share[0])} %</span></p>
      <svg viewBox={`0 0 ${wide} ${high}`} width="100%" role="img" aria-label={`${name}: ${points.map(({ run, share }) => `${run.name} ${Math.round(100 * share[0])} %`).join(", ")}`}>
        <path class="grid" d={`M0,${y(1)}H${wide}M0,${y(0)}H${wide}`} />
        {points.map(({ run, rate, share: [value, low, top] }, i) => {
          const old = points[i - 1];
          const same = old?.run.comparable.includes(run.run);
          const changed = old !== undefined && old.rate.hash !== rate.hash;
          const now = i === points.length - 1 ? "now" : "";
          return (
            <g key={run.run}>
              {old && <path class={same ? "join" : "cut"} d={same ? `M${x(i - 1)},${y(old.share[0])}L${x(i)},${y(value)}` : `M${(x(i - 1) + x(i)) / 2},0V${high}`} />}
              <path class="err" d={`M${x(i)},${y(low)}V${y(top)}`} />
              {changed ? <path class={`dia ${now}`} d={`M${x(i)},${y(value) - 6}l6,6l-6,6l-6,-6z`} /> : <circle class={now} cx={x(i)} cy={y(value)} r={now ? 5 : 3.5} />}
            </g>
          );
        })}
      </svg>
    </div>
  );
}

/** The runs, the newest first; with `chosen` each can be made the old or the new one of a comparison. */
export function Runs({ history, chosen }: { history: History; chosen?: [OtherRun, OtherRun] }) {
  const { place, go, source } = usePage();
  const { runs, broken } = history;
  const here = chosen?.[1] ?? runs.find(({ run }) => run === source.server!.head.run)!;
  const choose = (which: "old" | "new", run: OtherRun) =>
    go({ more: { ...place.more, old: chosen![0].name, new: chosen![1].name, [which]: run.name, cell: "", pair: "" } });
  return (
    <section class="history">
      <h2>Runs <span class="light sm">= has cases and a metric in common with {here.name}</span></h2>
      <table>
        <thead>
          <tr>
            {chosen && <th>compare</th>}
            <th>started</th><th>run, metrics</th><th>data · cases</th><th>judge</th><th>passed, 95 %</th><th>since the run before, same cases</th><th class="num">cost</th>
          </tr>
        </thead>
        <tbody>
          {[...runs].reverse().map((run, row) => {
            const same = run.run === here.run || here.comparable.includes(run.run);
            return (
              <tr key={run.run} class={run.run === here.run ? "cur" : ""}>
                {chosen && (
                  <td class="nw">
                    {same ? (["old", "new"] as const).map((which, i) => (
                      <button key={which} class="chip0" aria-pressed={chosen[i]!.run === run.run} disabled={chosen[1 - i]!.run === run.run}
                        aria-label={`${which}: ${run.name}`} onClick={() => choose(which, run)}>{which}</button>
                    )) : <span class="soft sm">nothing in common</span>}
                  </td>
                )}
                <td class="nw">{moment(run.started)}</td>
                <td><a href={`../${run.run}/`}>{run.name}</a><span class="one2 soft sm">{metricWords(run.metrics)}</span></td>
                <td>{same && "= "}{run.data ?? "cases"} <span class="soft">· {whole(run.cases)}</span></td>
                <td>{run.judges.join(", ")}</td>
                <td class="nw">{run.finished ? <Passed run={run} /> : <b>not finished: {whole(run.cases)}{run.planned ? ` of ${whole(run.planned)}` : ""}</b>}</td>
                <td>{run.finished ? <Since run={run} before={row < COMPARED ? runBefore(runs, run) : null} /> : <span class="soft">compared when finished</span>}</td>
                <td class="num nw">{money(run.cost)}</td>
              </tr>
            );
          })}
          {broken.map(({ name, why }) => <tr key={name}>{chosen && <td />}<td>·</td><td><b>{name}</b></td><td colSpan={5}><b class="none">⊘ Cannot be read:</b> {why}</td></tr>)}
        </tbody>
      </table>
    </section>
  );
}

function metricWords(metrics: string[]): string {
  return metrics.length > 3 ? `${metrics.slice(0, 2).join(", ")}, +${metrics.length - 2}` : metrics.join(", ");
}

function Passed({ run }: { run: OtherRun }) {
  const [rate] = run.rates.filter(({ share }) => share);
  if (run.rates.length === 1 && rate) {
    const [value, low, high] = rate.share!.map((part) => Math.round(100 * part)) as [number, number, number];
    return <><span class="share rate" aria-hidden="true"><i style={{ width: `${value}%` }} /></span> <b>{value} %</b> <span class="soft">({low} to {high}){without(rate)}</span></>;
  }
  return <>{passedWords(run)}</>;
}

/** What flipped since the run before on the same cases, by the metric that flipped most. */
function Since({ run, before }: { run: OtherRun; before: OtherRun | null }) {
  const server = usePage().source.server!;
  const found = useAnswer(async () => (before ? await server.changes(before.run, run.run).catch(() => null) : null), [server, run.run, before?.run]);
  if (!before) return <span class="soft">first run of this data</span>;
  if (!found) return <span class="soft">…</span>;
  const [most] = [...found.metrics].sort((a, b) => b.flips + b.lost + b.gained - a.flips - a.lost - a.gained);
  if (!most) return <span class="soft">·</span>;
  const why = most.tree[0];
  return (
    <>
      <a href={`#v=diff&old=${encodeURIComponent(before.name)}&new=${encodeURIComponent(run.name)}`}>{most.flips ? `${many(most.flips, "flip")}: ${whole(most.worse)} worse, ${whole(most.better)} better` : "no flips"}</a>
      {most.scores && <span class="one2 none sm">⊘ {most.scores}</span>}
      {why && <span class="one2 soft sm">{why.node ? `${why.node}: ` : ""}{why.what}</span>}
    </>
  );
}
