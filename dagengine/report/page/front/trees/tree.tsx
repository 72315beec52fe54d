// The tree as a picture: every edge a pipe as wide as its cases, with a core of those that failed.

import type { Box, Counts, Layout, Metric, Part, Stub } from "../data/source.ts";
import { answerKey } from "../data/names.ts";
import { pressing } from "../parts/chart.tsx";
import { SIGN, whole } from "../parts/words.ts";

type Choose = (part: Part, event: MouseEvent | KeyboardEvent) => void;

interface Props {
  metric: Metric;
  layout: Layout;
  counts: Counts;
  /** The counts of the whole run, where a filter is on. */
  ghost: Counts | null;
  cases: number;
  parts: Part[];
  choose: Choose;
  unfold: (stub: number) => void;
}

const MOST = 16; // width of a pipe that holds every case

export function Tree(props: Props) {
  const { metric, layout, counts } = props;
  const order = tabOrder(metric, layout);
  return (
    <svg class="tree" viewBox={`-2 -2 ${layout.width + 4} ${layout.height + 4}`} width={layout.width + 4} height={layout.height + 4}
      role="group" aria-label={`Tree of ${metric.name}`} onKeyDown={walk}>
      <g aria-hidden="true">
        {layout.feeds.map((feed) => (
          <path key={`${feed.from}-${feed.to}`} d={feed.path} class={feed.runs ? "runs" : "feeds"}
            stroke-width={feed.runs ? pipe(counts.nodes[feed.to]!.cases, props.cases) : undefined}
            onClick={(event) => props.choose({ kind: "n", key: metric.nodes[feed.from]!.name, not: false }, event)} />
        ))}
        {layout.edges.map((edge, answer) => edge && <Pipe key={answer} {...props} answer={answer} path={edge.path} />)}
      </g>
      {order.map((item) => {
        if ("stub" in item) return <Folded key={`s${item.stub}`} {...props} stub={layout.stubs[item.stub]!} place={item.stub} />;
        if ("node" in item) return <NodeBox key={`n${item.node}`} {...props} node={item.node} box={layout.nodes[item.node]!} />;
        return <Label key={`e${item.answer}`} {...props} answer={item.answer} />;
      })}
      <g aria-hidden="true">
        {layout.leaves.map((box, answer) => box && <Leaf key={answer} {...props} answer={answer} box={box} />)}
      </g>
    </svg>
  );
}

function pipe(cases: number, of: number): number {
  return cases ? 1.5 + (MOST * cases) / Math.max(1, of) : 1.25;
}

/** Nodes in the order of the graph, each followed by its answers. */
function tabOrder(metric: Metric, layout: Layout): ({ node: number } | { answer: number } | { stub: number })[] {
  const drawn = metric.nodes.flatMap((_, node) => {
    if (!layout.nodes[node]) return [];
    const answers = metric.answers.flatMap((a, answer) => (a.node === node && layout.edges[answer] ? [{ answer }] : []));
    return [{ node }, ...answers];
  });
  return [...drawn, ...layout.stubs.map((_, stub) => ({ stub }))];
}

/** One tab stop: arrows move inside the picture. */
function walk(event: KeyboardEvent): void {
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (!step || !(event.currentTarget instanceof Element)) return;
  const buttons = [...event.currentTarget.querySelectorAll<SVGElement>("[role=button]")];
  const here = buttons.indexOf(document.activeElement as SVGElement);
  const next = buttons[Math.min(buttons.length - 1, Math.max(0, here + step))];
  for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
  next?.focus();
  event.preventDefault();
  event.stopPropagation();
}

function Pipe({ metric, counts, ghost, cases, parts, choose, answer, path }: Props & { answer: number; path: string }) {
  const { cases: here, failed } = counts.answers[answer]!;
  const width = pipe(here, cases);
  const whole = ghost?.answers[answer]?.cases ?? 0;
  const key = answerKey(metric, answer);
  const chosen = parts.some((part) => part.kind === "e" && part.key === key);
  // The button of an edge is its label; a click on the pipe does the same.
  return (
    <g class={`pipe${here ? "" : " un"}${chosen ? " on" : ""}`} onClick={(event) => choose({ kind: "e", key, not: false }, event)}>
      <path d={path} class="hit" stroke-width={Math.max(12, width)} />
      {whole > 0 && <path d={path} class="ghost" stroke-width={pipe(whole, cases)} />}
      {chosen && <path d={path} class="halo" stroke-width={width + 7} />}
      {(here > 0 || !whole) && <path d={path} class="flow" stroke-width={width} />}
      {failed > 0 && <path d={path} class="core" stroke-width={Math.max(1.5, (width * failed) / here)} />}
    </g>
  );
}

function Label({ metric, layout, counts, ghost, parts, choose, answer }: Props & { answer: number }) {
  const { verdict, node, score } = metric.answers[answer]!;
  const { cases, failed } = counts.answers[answer]!;
  const at = layout.edges[answer]!.label;
  const key = answerKey(metric, answer);
  const mine = parts.find((part) => part.kind === "e" && part.key === key);
  const name = metric.nodes[node]!.name;
  const end = score === null ? "" : `, score ${score} of 10`;
  const press = (event: MouseEvent | KeyboardEvent) => choose({ kind: "e", key, not: false }, event);
  const shown = short(verdict, 24);
  const wide = 10 + 6.9 * Math.max(shown.length, `${whole(cases)} ✕ ${whole(failed)}`.length);
  return (
    <g id={`e-${answer}`} role="button" tabindex={-1} aria-pressed={mine !== undefined} onClick={press}
      onKeyDown={(event) => pressing(event) && press(event)}
      class={`e${cases ? "" : " un"}${mine ? " on" : ""}${ghost && !cases ? " dim" : ""}`}
      aria-label={`${shown} ${whole(cases)}${failed ? ` ✕ ${whole(failed)}` : ""}: answer of ${name}, ${cases} cases, ${failed} failed${end}`}>
      {at && <rect class="chip" x={at[0] - 6} y={at[1] - 13} width={wide} height={34} rx={6} />}
      {at && <text x={at[0]} y={at[1]} class="a">{shown}</text>}
      {at && " "}
      {at && (
        <text x={at[0]} y={at[1] + 15} class="c">
          {whole(cases)}{failed > 0 && <tspan class="f"> ✕ {whole(failed)}</tspan>}
        </text>
      )}
    </g>
  );
}

function leafSign(metric: Metric, score: number | null): string {
  const limit = metric.strict ? 1 : metric.threshold;
  if (limit === null || score === null) return "";
  return score / 10 >= limit ? "✓ " : "✕ ";
}

/** The score at the end of an answer; a click does what the button of the answer does. */
function Leaf({ metric, counts, ghost, choose, answer, box }: Props & { answer: number; box: Box }) {
  const [x, y, width, height] = box;
  const { score } = metric.answers[answer]!;
  const { cases } = counts.answers[answer]!;
  const sign = leafSign(metric, score);
  const press = (event: MouseEvent) => choose({ kind: "e", key: answerKey(metric, answer), not: false }, event);
  return (
    <g onClick={press} class={`leaf${cases ? "" : " un"}${sign === "✕ " ? " x" : ""}${ghost && !cases ? " dim" : ""}`}>
      <rect x={x} y={y} width={width} height={height} rx={height / 2} />
      <text x={x + width / 2} y={y + height / 2 + 4} text-anchor="middle">
        <tspan class="a">{sign}{score}</tspan><tspan class="c"> of 10</tspan>
      </text>
    </g>
  );
}

function NodeBox({ metric, layout, counts, ghost, parts, choose, node, box }: Props & { node: number; box: Box }) {
  const first = layout.nodes.findIndex(Boolean);
  const { name, kind } = metric.nodes[node]!;
  const { cases, failed, broken } = counts.nodes[node]!;
  const missing = Object.values(broken).reduce((sum, count) => sum + count, 0);
  const mine = parts.some((part) => part.kind === "n" && part.key === name);
  const [x, y, width, height] = box;
  const press = (event: MouseEvent | KeyboardEvent) => choose({ kind: "n", key: name, not: false }, event);
  const under = `${kindWord(kind)} · ${whole(cases)}`;
  const shown = short(name, 26);
  return (
    <g id={`n-${node}`} role="button" tabindex={node === first ? 0 : -1} aria-pressed={mine} onClick={press}
      onKeyDown={(event) => pressing(event) && press(event)}
      class={`n${cases || missing ? "" : " un"}${mine ? " on" : ""}${ghost && !cases ? " dim" : ""}`}
      aria-label={`${shown} ${under}${missing ? ` ⊘ ${whole(missing)}` : ""}: ${kind}, ${cases} cases, ${failed} failed`}>
      <rect x={x} y={y} width={width} height={height} rx={kind === "code" ? 0 : 6} />
      <text class="t" x={x + width / 2} y={y + 18} text-anchor="middle">{shown}</text>
      {" "}
      <text class="k" x={x + width / 2} y={y + 33} text-anchor="middle">
        {under}{missing > 0 && <tspan class="none"> {SIGN.none} {whole(missing)}</tspan>}
      </text>
    </g>
  );
}

function Folded({ layout, counts, stub, place, unfold }: Props & { stub: Stub; place: number }) {
  const into = stub.by.map((answer) => counts.answers[answer]!);
  const cases = into.reduce((sum, count) => sum + count.cases, 0);
  const failed = into.reduce((sum, count) => sum + count.failed, 0);
  const [x, y, width, height] = stub.box;
  const open = () => unfold(place);
  const nodes = `+${stub.nodes.length} ${stub.nodes.length === 1 ? "node" : "nodes"}`;
  return (
    <g role="button" tabindex={-1} class="n stub" onClick={open} onKeyDown={(event) => pressing(event) && open()}
      aria-label={`${nodes} ${whole(cases)}${failed ? ` ✕ ${whole(failed)}` : ""}: folded part of the tree, unfold it`}
      data-of={layout.stubs.length}>
      <rect x={x} y={y} width={width} height={height} rx={height / 2} />
      <text class="a" x={x + width / 2} y={y + 16} text-anchor="middle">{nodes}</text>
      {" "}
      <text class="k" x={x + width / 2} y={y + 30} text-anchor="middle">
        {whole(cases)}{failed > 0 && <tspan class="f"> ✕ {whole(failed)}</tspan>}
      </text>
    </g>
  );
}

export function short(text: string, most: number): string {
  const line = text.replace(/\s+/g, " ");
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

/** The kind of a node in one word. */
export function kindWord(kind: string): string {
  return kind.replace("binary ", "");
}

export function Legend({ filtered, cases }: { filtered: boolean; cases: number }) {
  return (
    <div class="legend soft sm">
      <span><i />{filtered ? `width: cases of the filter, out of all ${whole(cases)}` : "width: cases"}</span>
      <span><i class="lf" />core: cases that failed</span>
      <span><i class="lu" />no case went here</span>
      <span><b class="none">⊘</b> no answer</span>
    </div>
  );
}
