// The trace that a case was read from: its spans as a tree, with the verdicts that are about each.

import { useState } from "preact/hooks";
import type { CaseMetric, Metric, Step } from "../data/source.ts";
import { Judged, plain } from "../parts/texts.tsx";
import { many, SIGN, took, whole } from "../parts/words.ts";
import { ITEM_SIGN, judgedSteps, means, type Sign } from "./judged.ts";
import { branches, type Branch, type TraceSpan } from "./spans.ts";

const FOLDED = 40; // spans of a trace that are shown at first
const MORE = 500; // and that are added

type Fields = Record<string, unknown> | null;

/** A verdict of a metric on a span. */
interface SpanVerdict {
  metric: Metric;
  step: Step;
  words: string;
  sign: Sign;
  reason: string | null;
}

/** The verdicts of a metric by span. One that is about no span of its own is a verdict on the root. */
function verdictsOf(metric: Metric, result: CaseMetric, fields: Fields, root: string): Map<string, SpanVerdict[]> {
  const verdicts = new Map<string, SpanVerdict[]>();
  const add = (span: string, verdict: SpanVerdict) => verdicts.set(span, [...(verdicts.get(span) ?? []), verdict]);
  const judged = judgedSteps(metric, result, fields);
  for (const step of result.steps) {
    const items = judged.find((one) => one.step === step)?.items.filter(({ span }) => span !== null) ?? [];
    for (const { span, verdict, sign, reason } of items) add(span!, { metric, step, words: means(metric, verdict), sign, reason });
    if (items.length || step.verdict === null) continue;
    const sign = step.node !== null && step.node === result.endNode && result.state === "fail" ? "fail" : "plain";
    for (const span of step.spans.length ? step.spans : [root]) add(span, { metric, step, words: step.verdict, sign, reason: step.reason });
  }
  return verdicts;
}

/** The span that a case shows first: of a verdict that failed, else one that failed itself, else the root. */
export function firstSpan(trace: TraceSpan[], metric: Metric, result: CaseMetric, fields: Fields): string {
  const tree = branches(trace);
  const root = tree[0]!.span.span_id;
  const verdicts = verdictsOf(metric, result, fields, root);
  const failed = [...verdicts].find(([span, own]) => span !== root && own.some(({ sign }) => sign === "fail"));
  return failed?.[0] ?? (result.state === "fail" ? tree.find(({ span }) => span.error)?.span.span_id : null) ?? root;
}

/** The span that a step is about: the first of its items that failed, else its first one, else the root. */
export function spanOfStep(trace: TraceSpan[], metric: Metric, result: CaseMetric, fields: Fields, node: number | null): string {
  const step = result.steps.find((one) => one.node === node);
  const items = judgedSteps(metric, result, fields).find((one) => one.step === step)?.items ?? [];
  return items.find(({ sign }) => sign === "fail")?.span ?? step?.spans[0] ?? branches(trace)[0]!.span.span_id;
}

interface Props {
  trace: TraceSpan[];
  fields: Fields;
  metrics: Metric[];
  results: CaseMetric[];
  /** The metric in front, whose verdicts mark the spans. */
  front: number;
  chosen: string;
  choose: (span: string) => void;
  /** Shows the step of a verdict, under its metric. */
  show: (metric: number, step: Step) => void;
}

export function Trace({ trace, fields, metrics, results, front, chosen, choose, show }: Props) {
  const [room, setRoom] = useState(FOLDED);
  const tree = branches(trace);
  const root = tree[0]!.span;
  const verdicts = metrics.map((metric, i) => verdictsOf(metric, results[i]!, fields, root.span_id));
  const own = verdicts[front]!;
  const at = Math.max(0, tree.findIndex(({ span }) => span.span_id === chosen));
  const shown = inSight(tree, room, ({ span }, i) => i === at || !!span.error || (i > 0 && own.has(span.span_id)));
  const failed = trace.filter(({ error }) => error).length;
  const move = (event: KeyboardEvent) => {
    const here = shown.indexOf(at);
    const next = { ArrowDown: shown[here + 1], ArrowUp: shown[here - 1], Home: shown[0], End: shown.at(-1) }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    choose(tree[next]!.span.span_id);
    const list = event.currentTarget as HTMLElement;
    requestAnimationFrame(() => list.querySelector<HTMLElement>("[tabindex='0']")?.focus());
  };
  return (
    <div class="trace">
      <div>
        <h2>Trace <span class="light">{many(trace.length, "span")}{failed > 0 && <>, <span class="fail">{SIGN.fail} {whole(failed)} failed</span></>}{root.seconds != null && ` · ${took(root.seconds)}`}</span></h2>
        <ul role="tree" aria-label="Spans of the trace" onKeyDown={move}>
          {shown.map((i) => {
            const { span, depth } = tree[i]!;
            return (
              <li key={i} role="treeitem" aria-level={depth + 1} aria-selected={i === at} tabIndex={i === at ? 0 : -1} class={i === at ? "on" : ""}
                style={{ paddingLeft: `${6 + 12 * Math.min(depth, 10)}px` }} onClick={() => choose(span.span_id)}>
                <span class="soft sm">{span.kind}</span> <span class="name" dir="auto">{span.name}</span>
                {span.error && <b class="fail nw"> {SIGN.fail} failed</b>}
                <span class="nw">{tally(own.get(span.span_id) ?? []).map(({ sign, words }) => <b key={words} class={`chip1 ${sign}`}>{words}</b>)}</span>
                <span class="soft sm nw time">{span.seconds != null && took(span.seconds)}</span>
              </li>
            );
          })}
        </ul>
        {shown.length < tree.length && <button class="link-b rest" onClick={() => setRoom(Math.max(room, shown.length) + MORE)}>{many(tree.length - shown.length, "more span")}</button>}
      </div>
      <Details span={tree[at]!.span} fields={fields} verdicts={verdicts} front={front} show={show} />
    </div>
  );
}

/** The places of branches that are shown: those that matter with all around them, then the first ones. */
function inSight(tree: Branch[], room: number, matters: (branch: Branch, place: number) => boolean): number[] {
  const places = new Set<number>();
  for (let place = 0; place < tree.length && places.size < room; place++) {
    if (!matters(tree[place]!, place)) continue;
    for (let up = place; up >= 0; up = tree[up]!.inside) places.add(up);
  }
  for (let place = 0; place < tree.length && places.size < room; place++) places.add(place);
  return [...places].sort((a, b) => a - b);
}

/** Verdicts as they mark a span: one by its word, several by their signs. */
function tally(verdicts: SpanVerdict[]): { sign: Sign; words: string }[] {
  if (verdicts.length === 1) return verdicts.map((one) => ({ sign: one.sign, words: signed(one) }));
  return (["fail", "open", "plain", "pass"] as const).flatMap((sign) => {
    const count = verdicts.filter((one) => one.sign === sign).length;
    return count ? [{ sign, words: `${ITEM_SIGN[sign]} ${whole(count)}` }] : [];
  });
}

function signed({ sign, words }: Pick<SpanVerdict, "sign" | "words">): string {
  return sign === "plain" ? words : `${ITEM_SIGN[sign]} ${words}`;
}

interface DetailsProps {
  span: TraceSpan;
  fields: Fields;
  verdicts: Map<string, SpanVerdict[]>[];
  front: number;
  show: Props["show"];
}

/** What one span was given and gave, and what was said of it. */
function Details({ span, fields, verdicts, front, show }: DetailsProps) {
  const order = [front, ...verdicts.keys()].filter((metric, place, all) => all.indexOf(metric) === place);
  const said = order.flatMap((metric) => (verdicts[metric]!.get(span.span_id) ?? []).map((verdict) => ({ ...verdict, at: metric })));
  const tokens = (span.input_token_count ?? 0) + (span.output_token_count ?? 0);
  return (
    <section class="span0" aria-label={`Span ${span.name}`}>
      <h3 dir="auto">{span.name} <span class="light">· {span.kind}{span.seconds != null && ` · ${took(span.seconds)}`}{tokens > 0 && ` · ${whole(tokens)} tokens`}</span></h3>
      {said.map(({ metric, step, reason, at, ...verdict }, i) => (
        <p key={i} dir="auto">
          <b class={verdict.sign === "fail" ? "fail" : ""}>{signed(verdict)}</b>{" "}
          <button class="link-b" onClick={() => show(at, step)}>{at === front ? step.name : `${metric.name}: ${step.name}`}</button>
          {reason && <span class="why"> {reason}</span>}
        </p>
      ))}
      {span.error && <p class="fail" dir="auto"><b>{SIGN.fail} failed:</b> {span.error}</p>}
      <Content title="input" value={span.input} same={fields?.input} of="input" />
      {span.documents?.map((text, i) => <Content key={i} title={`document ${whole(i + 1)} of ${whole(span.documents!.length)}`} value={text} />)}
      {!(span.documents && span.output == null) && <Content title="output" value={span.output} same={fields?.actual_output} of="actual_output" />}
      <p class="soft sm">span {span.span_id}{span.trace_id && ` of trace ${span.trace_id}`}</p>
    </section>
  );
}

/** A text of a span; where it is a field of the case it is shown there. */
function Content({ title, value, same, of }: { title: string; value: unknown; same?: unknown; of?: string }) {
  const text = plain(value);
  if (text && text === same) return <p class="soft sm">{title}: the <code>{of}</code> of the case</p>;
  return <div><h4>{title}{!text && <span class="light"> · none, or not captured</span>}</h4>{text && <Judged text={text} />}</div>;
}
