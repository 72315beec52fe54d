// Two runs: which cases flipped, at which node they part, and why.

import { Fragment, type ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { CAUSES, type Cause, type Change, type History, type Kind, type MetricChanges, type OtherRun, type RunChanges, type TreeChange } from "../data/server.ts";
import { CAUSE, changedWords } from "../parts/changed.ts";
import { useKeys } from "../parts/keys.ts";
import { Lines } from "../parts/lines.tsx";
import { Announce, useTitle } from "../parts/screen.tsx";
import { useAnswer, usePage } from "../parts/state.ts";
import { many, moment, money, score, SIGN, STATE, stateOf, time, whole } from "../parts/words.ts";
import { Both } from "./both.tsx";
import { runBefore, Runs } from "./runs.tsx";

const SHORT: Record<Cause, string> = { definition: "tree", evidence: "data", judge: "judge", same: "same question" };
const KINDS: [string, string, Kind[]][] = [
  ["flipped", "Flipped", ["worse", "better"]], ["worse", "Worse", ["worse"]], ["better", "Better", ["better"]],
  ["lost", "No score now", ["lost"]], ["gained", "Score now", ["gained"]], ["score", "Other score", ["score"]],
  ["path", "Other path", ["path"]],
];
const STEP = 200; // rows that are shown at first, and added

export function Compare() {
  const { source, place } = usePage();
  const server = source.server!;
  const history = useAnswer(() => server.runs(), [server]);
  if (!history) return null;
  const pair = chosenRuns(history.runs, server.head.run, place.more);
  if (!pair) return <Alone history={history} />;
  if (!pair[1].comparable.includes(pair[0].run)) return <Nothing history={history} old={pair[0]} now={pair[1]} />;
  return <Pair history={history} old={pair[0]} now={pair[1]} />;
}

/** The old and the new run that the address names, else this one and the last before it that can be compared. */
function chosenRuns(runs: OtherRun[], here: number, more: Record<string, string>): [OtherRun, OtherRun] | null {
  const named = (name: string | undefined) => runs.find((run) => run.name === name);
  const other = (run: OtherRun) => runBefore(runs, run) ?? runs.find(({ run: number }) => run.comparable.includes(number));
  const now = named(more.new) ?? (runBefore(runs, runs[here]!) ? runs[here]! : (other(runs[here]!) ?? runs[here]!));
  const old = named(more.old) ?? other(now) ?? runs.findLast((run) => run !== now);
  return old && now && old !== now ? [old, now] : null;
}

function Alone({ history }: { history: History }) {
  const { source } = usePage();
  useTitle("Compare", source.run.name);
  return (
    <>
      <h1>There is no other run to compare with</h1>
      <p>Start the server with several folders, the history of a metric:</p>
      <code class="cmd">dagengine view runs/old {source.run.folder}</code>
      <Runs history={history} />
    </>
  );
}

/** Two runs without a metric or a case in common: what each has, and the ways out. */
function Nothing({ history, old, now }: { history: History; old: OtherRun; now: OtherRun }) {
  const { source, go } = usePage();
  const common = old.metrics.some((name) => now.metrics.includes(name));
  const other = runBefore(history.runs, now) ?? history.runs.find(({ run }) => now.comparable.includes(run));
  useTitle("Nothing to compare", source.run.name);
  return (
    <>
      <h1>Nothing to compare: no {common ? "case" : "metric"} in common</h1>
      <Lines lines={[old, now].map((run, i): [string, ComponentChildren] => [i ? "new" : "old", <><a href={`../${run.run}/`}>{run.name}</a>, {moment(run.started)} · {run.metrics.join(", ")} · {run.data ?? "cases"}, {many(run.cases, "case")}</>])} />
      <p class="chips parts">
        {other && <button class="btn" onClick={() => go({ more: { old: other.name, new: now.name } })}>Compare {now.name} with {other.name}</button>}
        <button class="btn quiet" onClick={() => go({ view: "runs", more: {} })}>All runs</button>
      </p>
      <Runs history={history} />
    </>
  );
}

function Pair({ history, old, now }: { history: History; old: OtherRun; now: OtherRun }) {
  const { source, place, go } = usePage();
  const server = source.server!;
  const found = useAnswer(() => server.changes(old.run, now.run), [server, old.run, now.run]);
  useKeys({ x: () => go({ more: { ...place.more, old: now.name, new: old.name, pair: "", cell: "" } }) });
  if (!found) return <p class="soft" role="status">Comparing {old.name} with {now.name} …</p>;
  const metric = found.metrics.find((m) => m.metric === place.metric) ?? found.metrics[0]!;
  const [oldPlace, newPlace] = (place.more.pair ?? "").split("-").map(Number);
  if (place.more.pair && oldPlace !== undefined && newPlace !== undefined) {
    const change = metric.changes.find((c) => c.index.join("-") === place.more.pair) ?? null;
    const shown = change ? metric.changes.filter(({ kind }) => kind === change.kind || (isFlip(kind) && isFlip(change.kind))) : [];
    return <Both runs={[old, now]} metric={metric.metric} places={[oldPlace, newPlace]} change={change} among={shown} />;
  }
  return (
    <>
      <Overview found={found} metric={metric} runs={[old, now]} />
      <Runs history={history} chosen={[old, now]} />
    </>
  );
}

function isFlip(kind: Kind): boolean {
  return kind === "worse" || kind === "better";
}

function Overview({ found, metric, runs }: { found: RunChanges; metric: MetricChanges; runs: [OtherRun, OtherRun] }) {
  const { source } = usePage();
  const title = found.agrees ? "The two runs agree" : metric.headline;
  useTitle(title, source.run.name);
  return (
    <>
      <p class="soft sm">{runs[0].name} · {moment(runs[0].started)} → <b>{runs[1].name}</b> · {moment(runs[1].started)}</p>
      <div class={metric.flips ? "head" : "head one"}>
        <div>
          <h1>{title}</h1>
          {found.metrics.length > 1 && <Metrics found={found} metric={metric} />}
          {found.agrees ? <Agree found={found} metric={metric} /> : <Summary found={found} metric={metric} />}
        </div>
        {metric.flips > 0 && <ByCause metric={metric} />}
      </div>
      {!found.agrees && (
        <div class="body compare">
          <section>
            {metric.flips > 0 && <Matrix metric={metric} />}
            <Tree metric={metric} />
          </section>
          <Cases key={metric.metric} metric={metric} />
        </div>
      )}
    </>
  );
}

function Metrics({ found, metric }: { found: RunChanges; metric: MetricChanges }) {
  const { go } = usePage();
  return (
    <p class="chips parts">
      {found.metrics.map((one) => (
        <button key={one.metric} class="chip0" aria-pressed={one === metric} onClick={() => go({ metric: one.metric })}>
          {one.metric} {whole(one.flips)}
        </button>
      ))}
    </p>
  );
}

function Agree({ found, metric }: { found: RunChanges; metric: MetricChanges }) {
  const spent: string[] = [];
  const { old, new: now } = found;
  if (old.seconds !== now.seconds && old.seconds !== null && now.seconds !== null) spent.push(`${time(old.seconds)} → ${time(now.seconds)}`);
  if (old.cost !== now.cost) spent.push(`${money(old.cost)} → ${money(now.cost)}`);
  return (
    <Lines lines={[
      ["result", `${whole(metric.same)} of ${many(metric.cases, "case")}: the same answer at every node, the same score`],
      ["differs", spent.length ? `time and money only: ${spent.join(", ")}` : "nothing"],
    ]} />
  );
}

function Summary({ found, metric }: { found: RunChanges; metric: MetricChanges }) {
  const { causes, noise } = metric;
  const lines: [string, ComponentChildren][] = [["result", metric.result.join(" · ")]];
  if (metric.scores) lines.push(["scores", <b class="none">⊘ {metric.scores}</b>]);
  if (metric.flips) {
    lines.push(["where", <Where metric={metric} />]);
    lines.push(["cause", CAUSES.map((cause, i) => (
      <Fragment key={cause}>{i > 0 && " · "}{SHORT[cause]}{cause === "same" && " answered differently"} {causes[cause] ? <b>{whole(causes[cause])}</b> : "0"}</Fragment>
    ))]);
  }
  if (noise) lines.push(["noise", noise.words]);
  else if (metric.noise_missing) lines.push(["noise", <span class="soft">not known: {metric.noise_missing}</span>]);
  const data = onData(found);
  if (data) lines.push(["data", data]);
  return <Lines lines={lines} />;
}

function onData({ cases, old, new: now, added_metrics, removed_metrics }: RunChanges): string {
  const parts: string[] = [];
  if (cases.new) parts.push(many(cases.new, "new case"));
  if (cases.missing) parts.push(`${many(cases.missing, "case")} gone`);
  if (cases.renamed) parts.push(`${many(cases.renamed, "case")} renamed`);
  if (cases.changed) parts.push(`${many(cases.changed, "case")} with another content`);
  if (added_metrics.length) parts.push(`new metrics: ${added_metrics.join(", ")}`);
  if (removed_metrics.length) parts.push(`metrics gone: ${removed_metrics.join(", ")}`);
  if (!old.finished) parts.push("the old run is not finished");
  if (!now.finished) parts.push("the new run is not finished");
  return parts.join(" · ");
}

function said(value: number | null): string {
  return value === null ? "none" : score(value);
}

function sum(row: Record<Cause, number>): number {
  return CAUSES.reduce((total, cause) => total + row[cause], 0);
}

function Where({ metric }: { metric: MetricChanges }) {
  const ranked = metric.nodes.filter((row) => sum(row)).sort((a, b) => sum(b) - sum(a));
  return (
    <>
      {ranked.map((row, i) => (
        <Fragment key={row.node}>
          {i > 0 && ", "}
          {i === 0 ? <b>{whole(sum(row))} first differ at {row.node || "the settings"}</b> : <>{whole(sum(row))} at {row.node || "the settings"}</>}
        </Fragment>
      ))}
    </>
  );
}

function ByCause({ metric }: { metric: MetricChanges }) {
  const shown = CAUSES.filter((cause) => metric.causes[cause]);
  return (
    <div>
      <h2 class="h3">Flips by cause</h2>
      <div class="causes" role="img" aria-label={`Flips by cause: ${shown.map((cause) => `${SHORT[cause]} ${metric.causes[cause]}`).join(", ")}`}>
        {shown.map((cause) => <span key={cause} class={`by-${cause}`} style={{ flexGrow: metric.causes[cause] }}>{SHORT[cause]} {whole(metric.causes[cause])}</span>)}
      </div>
      <p class="soft sm">
        {many(metric.same, "case")} {metric.same === 1 ? "is" : "are"} unchanged{metric.other_path > 0 && <>; {whole(metric.other_path)} of them took another path to the same result</>}.
      </p>
    </div>
  );
}

function Matrix({ metric }: { metric: MetricChanges }) {
  const { place, go } = usePage();
  const choose = (cell: string) => go({ more: { ...place.more, cell: place.more.cell === cell ? "" : cell, kind: "" } });
  return (
    <>
      <h2>First node that differs</h2>
      <table class="matrix">
        <thead>
          <tr><th>node</th>{CAUSES.map((cause) => <th key={cause} class="num">{SHORT[cause]}</th>)}</tr>
        </thead>
        <tbody>
          {metric.nodes.map((row) => (
            <tr key={row.node}>
              <th scope="row">{row.node || "(settings)"}</th>
              {CAUSES.map((cause) => {
                const cell = `${row.node}:${cause}`;
                return (
                  <td key={cause} class="num">
                    {row[cause] ? (
                      <button class="cell" aria-pressed={place.more.cell === cell} aria-label={`${row[cause]}: flips at ${row.node || "the settings"}, ${CAUSE[cause]}`}
                        onClick={() => choose(cell)}>{whole(row[cause])}</button>
                    ) : "·"}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function Tree({ metric }: { metric: MetricChanges }) {
  return (
    <>
      <h2>What changed in the tree</h2>
      {metric.tree.map((change) => <TreeLine key={`${change.node}${change.kind}`} change={change} />)}
      <p class="soft sm">{metric.tree.length ? "All else in the tree is the same." : "Nothing: nodes, thresholds and judges are the same."}</p>
    </>
  );
}

function TreeLine({ change }: { change: TreeChange }) {
  const { kind, node, what, old, new: now, old_hash, new_hash } = change;
  const words = kind === "definition" && old !== null && now !== null && old !== now;
  const hashes = kind === "definition" && old_hash && new_hash;
  return (
    <div class="field">
      <p>{node && <b>{node}</b>}{node && " · "}{hashes ? <>definition {old_hash.slice(0, 4)} → {new_hash.slice(0, 4)}{!words && <>: {what}</>}</> : what}</p>
      {words && (
        <div class="txt" dir="auto">
          {changedWords(old, now).map(({ text, how }, i) => (how === "gone" ? <del key={i}>{text}</del> : how === "new" ? <ins key={i}>{text}</ins> : text))}
        </div>
      )}
    </div>
  );
}

function Cases({ metric }: { metric: MetricChanges }) {
  const { place, go } = usePage();
  const kinds = KINDS.map(([id, word, of]) => ({ id, word, of, count: metric.changes.filter((c) => of.includes(c.kind)).length })).filter((one) => one.count);
  const chosen = kinds.find((one) => one.id === place.more.kind) ?? kinds[0];
  const [node, cause] = cellOf(place.more.cell ?? "");
  const shown = metric.changes.filter((c) => chosen?.of.includes(c.kind) && (cause === null || (c.node === node && c.cause === cause)));
  const [room, setRoom] = useState(STEP);
  const [at, setAt] = useState(0);
  const open = (change: Change) => go({ more: { ...place.more, pair: change.index.join("-") } });
  const move = (to: number) => {
    const next = Math.max(0, Math.min(to, Math.min(room, shown.length) - 1));
    setAt(next);
    document.getElementById(`change-${next}`)?.focus();
  };
  useKeys({
    j: () => move(document.activeElement?.id.startsWith("change-") ? at + 1 : at),
    k: () => move(at - 1),
  });
  useEffect(() => setAt(0), [place.more.cell, place.more.kind]);
  if (!chosen) return <section />;
  return (
    <section>
      <p class="chips">
        {kinds.map((one) => (
          <button key={one.id} class="chip0" aria-pressed={one === chosen && cause === null}
            onClick={() => go({ more: { ...place.more, kind: one.id, cell: "" } })}>{one.word} {whole(one.count)}</button>
        ))}
        {cause !== null && (
          <button class="chip0 on" aria-label={`${node || "settings"}, ${SHORT[cause]}: remove from the filter`} onClick={() => go({ more: { ...place.more, cell: "" } })}>
            {node || "settings"}, {SHORT[cause]} <span aria-hidden="true">✕</span>
          </button>
        )}
      </p>
      <Announce text={many(shown.length, "case")} />
      <table class="changes" aria-label="Cases that changed">
        <thead>
          <tr><th>state</th><th>case</th><th class="num">score</th><th>first difference</th><th>cause</th></tr>
        </thead>
        <tbody>
          {shown.slice(0, room).map((change, i) => <Row key={change.index.join("-")} change={change} id={`change-${i}`} here={i === at} open={() => { setAt(i); open(change); }} />)}
        </tbody>
      </table>
      {shown.length > room && <p><button class="btn" onClick={() => setRoom(room + STEP)}>{whole(shown.length - room)} more</button></p>}
      <div class="foot"><span class="k"><kbd>Enter</kbd> both walks side by side</span><span class="k"><kbd>j</kbd> <kbd>k</kbd> move</span><span class="k"><kbd>x</kbd> swap old and new</span></div>
    </section>
  );
}

function cellOf(cell: string): [string, Cause | null] {
  const end = cell.lastIndexOf(":");
  const cause = CAUSES.find((one) => one === cell.slice(end + 1));
  return end < 0 || !cause ? ["", null] : [cell.slice(0, end), cause];
}

function Row({ change, id, here, open }: { change: Change; id: string; here: boolean; open: () => void }) {
  const { state, score: scores, node, answer, kind, cause, detail } = change;
  const why = kind === "lost" && cause === "same" ? "no answer this time" : CAUSE[cause];
  return (
    <tr id={id} tabIndex={here ? 0 : -1} class={here ? "at" : ""} onClick={open} onKeyDown={(event) => event.key === "Enter" && open()}>
      <td class="nw"><Sign state={stateOf(state[0])} />→<Sign state={stateOf(state[1])} /></td>
      <td><span class="one name">{change.case}</span><span class="one soft sm" dir="auto">{change.first}</span></td>
      <td class="num nw"><span class="soft">{said(scores[0])} →</span> <b>{said(scores[1])}</b></td>
      <td><b>{node || "settings"}</b><br />{answer[0]} → {answer[1]}</td>
      <td>{why}{detail && <span class="soft sm one2">{detail}</span>}</td>
    </tr>
  );
}

function Sign({ state }: { state: keyof typeof SIGN }) {
  return <span class={`g ${state}`} aria-label={STATE[state]} role="img">{SIGN[state]}</span>;
}
