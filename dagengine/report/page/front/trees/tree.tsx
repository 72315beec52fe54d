// The tree as a picture: every edge a pipe as wide as its cases, with a core of those that failed.

import type { Box, Counts, Layout, Metric, Never, Part, Stub } from "../data/source.ts";
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
  /** Unfolds the metric that a node stands for; null folds it again. */
  enter: (node: number | null) => void;
  /** Pixels of the screen for one of the drawing; 1 by default. */
  zoom?: number;
}

const MOST = 12; // width of a pipe that holds every case
const BAR = 7; // height of the bar in a node

export function Tree(props: Props) {
  const { metric, layout, counts } = props;
  const order = tabOrder(metric, layout);
  return (
    <svg class="tree" viewBox={`-2 -2 ${layout.width + 4} ${layout.height + 4}`} width={(layout.width + 4) * (props.zoom ?? 1)} height={(layout.height + 4) * (props.zoom ?? 1)}
      role="group" aria-label={`Tree of ${metric.name}`} onKeyDown={walk}>
      {layout.frames.map(({ node, box }) => <Frame key={`f${node}`} {...props} node={node} box={box} />)}
      <g aria-hidden="true">
        {layout.feeds.map((feed) => (
          <path key={`${feed.from}-${feed.to}`} d={feed.path} class={feed.runs ? "runs" : "feeds"}
            stroke-width={feed.runs ? pipe(counts.nodes[feed.to]!.cases, props.cases) : undefined}
            onClick={(event) => props.choose({ kind: "n", key: metric.nodes[feed.from]!.name, not: false }, event)} />
        ))}
        {layout.never.map(({ node, path }) => <path key={`u${node}`} d={path} class="feeds cut" />)}
        {layout.edges.map((edge, answer) => edge && <Pipe key={answer} {...props} answer={answer} path={edge.path} />)}
      </g>
      {order.map((item) => {
        if ("stub" in item) return <Folded key={`s${item.stub}`} {...props} stub={layout.stubs[item.stub]!} place={item.stub} />;
        if ("node" in item) return <NodeBox key={`n${item.node}`} {...props} node={item.node} box={layout.nodes[item.node]!} />;
        return <Label key={`e${item.answer}`} {...props} answer={item.answer} />;
      })}
      {layout.never.map((never) => <Untaken key={`u${never.node}`} {...props} never={never} />)}
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
  const { shared } = layout.edges[answer]!;
  const wide = 10 + 6.9 * (shown.length + (shared ? whole(cases).length + 1 : 0));
  // A count is said once: in what the edge leads to, and beside it only where others lead there, too.
  return (
    <g id={`e-${answer}`} role="button" tabindex={-1} aria-pressed={mine !== undefined} onClick={press}
      onKeyDown={(event) => pressing(event) && press(event)}
      class={`e${cases ? "" : " un"}${mine ? " on" : ""}${ghost && !cases ? " dim" : ""}`}
      aria-label={`${shown} ${whole(cases)}${failed ? ` ✕ ${whole(failed)}` : ""}: answer of ${name}, ${cases} cases, ${failed} failed${end}`}>
      {at && <rect class="chip" x={at[0] - 6} y={at[1] - 13} width={wide} height={18} rx={6} />}
      {at && <text x={at[0]} y={at[1]} class="a">{shared && cases > 0 ? `${shown} ${whole(cases)}` : shown}</text>}
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
  const most = sign === "✕ " && cases > 0 && metric.answers.every((other, i) => i === answer || leafSign(metric, other.score) !== "✕ " || counts.answers[i]!.cases < cases);
  const press = (event: MouseEvent) => choose({ kind: "e", key: answerKey(metric, answer), not: false }, event);
  return (
    <g onClick={press} class={`leaf${cases ? "" : " un"}${sign === "✕ " ? " x" : ""}${most ? " most" : ""}${ghost && !cases ? " dim" : ""}`}>
      <rect x={x} y={y} width={width} height={height} rx={height / 2} />
      <text x={x + width / 2} y={y + height / 2 + 4} text-anchor="middle">
        <tspan class="a">{sign}{score}</tspan><tspan class="c"> · {whole(cases)}</tspan>
      </text>
    </g>
  );
}

function NodeBox({ metric, layout, counts, ghost, parts, choose, enter, node, box }: Props & { node: number; box: Box }) {
  const first = layout.nodes.findIndex(Boolean);
  const { name, kind } = metric.nodes[node]!;
  const { cases, failed, none, broken } = counts.nodes[node]!;
  const missing = Object.values(broken).reduce((sum, count) => sum + count, 0);
  const mine = parts.some((part) => part.kind === "n" && part.key === name);
  const [x, y, width, height] = box;
  const opens = node in metric.nested;
  const press = (event: MouseEvent | KeyboardEvent) => {
    choose({ kind: "n", key: name, not: false }, event);
    if (opens) enter(node);
  };
  const word = kindWord(kind);
  const under = `${word === "judgement" ? "" : `${word} · `}${whole(cases)}`;
  const shown = short(name, 26);
  const items = itemCounts(metric, counts, node);
  const line = items.length ? `items: ${items.map(({ sign, count, verdict }) => `${sign}${whole(count)} ${verdict}`).join(" · ")}` : "";
  // A list shows its items, since nearly every case has some of each.
  const shares = items.length ? items.map(({ look, count }) => [look, count] as const) : [["x", failed], ["n", none], ["", cases - failed - none]] as const;
  const of = shares.reduce((sum, [, count]) => sum + count, 0);
  let at = x + 1;
  return (
    <g id={`n-${node}`} role="button" tabindex={node === first ? 0 : -1} aria-pressed={mine} onClick={press}
      onKeyDown={(event) => pressing(event) && press(event)}
      class={`n${cases || missing ? "" : " un"}${mine ? " on" : ""}${ghost && !cases ? " dim" : ""}`}
      aria-label={`${shown} ${under}${failed ? ` ✕ ${whole(failed)}` : ""}${missing ? ` ⊘ ${whole(missing)}` : ""}${line && ` ${line}`}: ${kind}, ${cases} cases, ${failed} failed${opens ? ", unfolds" : ""}`}>
      <rect x={x} y={y} width={width} height={height} rx={kind === "code" ? 0 : 6} />
      {kind === "metric" && <rect class="inner" x={x + 3} y={y + 3} width={width - 6} height={height - 6} rx={4} />}
      {of > 0 && shares.map(([look, count]) => {
        const wide = ((width - 2) * count) / of;
        at += wide;
        return count > 0 && [
          <rect key={look} class={`part ${look}`} x={at - wide} y={y + height - BAR - 1} width={wide} height={BAR} />,
          look === "x" && <rect key="hatch" class="part" style={{ fill: "url(#hatch)" }} x={at - wide} y={y + height - BAR - 1} width={wide} height={BAR} />,
        ];
      })}
      <text class="t" x={x + width / 2} y={y + 16} text-anchor="middle">{shown}</text>
      {" "}
      <text class="k" x={x + width / 2} y={y + 30} text-anchor="middle">
        {under}{failed > 0 && <tspan class="f"> ✕ {whole(failed)}</tspan>}{missing > 0 && <tspan class="none"> {SIGN.none} {whole(missing)}</tspan>}
      </text>
      {line && " "}
      {line && <text class="k" x={x + width / 2} y={y + 45} text-anchor="middle">{line}</text>}
    </g>
  );
}

/** How many items of a list got which verdict: no, cannot tell, then the others. */
function itemCounts(metric: Metric, counts: Counts, node: number): { verdict: string; count: number; sign: string; look: string }[] {
  const known = ["no", "false", "idk"];
  return metric.answers.flatMap(({ node: of, verdict }, answer) => {
    const count = of === node ? counts.answers[answer]!.items : 0;
    if (!count) return [];
    const rank = known.indexOf(verdict.toLowerCase());
    return [{ verdict, count, sign: rank === 2 ? "? " : rank >= 0 ? "✕ " : "", look: rank === 2 ? "open" : rank >= 0 ? "x" : "" , rank: rank < 0 ? 9 : rank }];
  }).sort((a, b) => a.rank - b.rank || b.count - a.count).slice(0, 4);
}

/** A metric that is unfolded in its place, with the button that folds it. */
function Frame({ metric, enter, node, box }: Props & { node: number; box: Box }) {
  const [x, y, width, height] = box;
  const { name, inside } = metric.nodes[node]!;
  const fold = () => enter(inside);
  return (
    <g class="n frame">
      <rect x={x} y={y} width={width} height={height} rx={6} />
      <rect class="inner" x={x + 3} y={y + 3} width={width - 6} height={height - 6} rx={4} />
      <text class="t" x={x + 12} y={y + 19}>{short(name, 26)}</text>
      <g role="button" tabindex={-1} aria-label={`fold: ${name}`} onClick={fold} onKeyDown={(event) => pressing(event) && fold()}>
        <rect class="hit" x={x + width - 48} y={y + 5} width={43} height={20} />
        <text class="k" x={x + width - 12} y={y + 19} text-anchor="end">fold</text>
      </g>
    </g>
  );
}

/** What no case took: one pill for all such answers of a node. */
function Untaken({ layout, never, unfold }: Props & { never: Never }) {
  const [x, y, width, height] = never.box;
  const words = never.nodes ? `${never.nodes} ${never.nodes === 1 ? "node" : "nodes"}, never taken` : "never taken";
  const open = () => unfold(layout.stubs.length);
  const press = never.nodes ? { role: "button" as const, tabindex: -1, onClick: open, onKeyDown: (event: KeyboardEvent) => pressing(event) && open(), "aria-label": `${words}: unfold the whole tree` } : { "aria-hidden": true as const };
  return (
    <g class="leaf un" {...press}>
      <rect x={x} y={y} width={width} height={height} rx={height / 2} />
      <text class="c" x={x + width / 2} y={y + height / 2 + 4} text-anchor="middle">{words}</text>
      {never.label && <text class="c" aria-hidden="true" x={never.label[0]} y={never.label[1]}>{short(never.words, 24)}</text>}
    </g>
  );
}

function Folded({ layout, counts, stub, place, unfold }: Props & { stub: Stub; place: number }) {
  const into = stub.by.map((answer) => counts.answers[answer]!);
  const cases = into.reduce((sum, count) => sum + count.cases, 0);
  const failed = into.reduce((sum, count) => sum + count.failed, 0);
  const none = into.reduce((sum, count) => sum + count.none, 0);
  const [x, y, width, height] = stub.box;
  const open = () => unfold(place);
  const nodes = `${stub.nodes.length} ${stub.nodes.length === 1 ? "node" : "nodes"}, ${whole(failed)} failed`;
  return (
    <g role="button" tabindex={-1} class="n stub" onClick={open} onKeyDown={(event) => pressing(event) && open()}
      aria-expanded={false} aria-label={`${nodes} of ${whole(cases)}: folded part of the tree, unfold it`}
      data-of={layout.stubs.length}>
      <rect x={x} y={y} width={width} height={height} rx={height / 2} />
      <text class="a" x={x + width / 2} y={y + 15} text-anchor="middle">{nodes}</text>
      {" "}
      <text class="k" x={x + width / 2} y={y + 28} text-anchor="middle">
        of {whole(cases)}
      </text>
      {cases > 0 && <rect class="part" x={x + 14} y={y + height - 7} width={width - 28} height={4} />}
      {failed > 0 && <rect class="part x" x={x + 14} y={y + height - 7} width={((width - 28) * failed) / cases} height={4} />}
      {none > 0 && <rect class="part n" x={x + 14 + ((width - 28) * failed) / cases} y={y + height - 7} width={((width - 28) * none) / cases} height={4} />}
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

/** What the signs of this picture mean, by its own counts. */
export function Legend({ metric, counts, filtered, cases }: { metric: Metric; counts: Counts; filtered: boolean; cases: number }) {
  const { failed, none } = counts;
  const ends = metric.answers.map((answer, i) => ({ score: answer.score, sign: leafSign(metric, answer.score), count: counts.answers[i]!.cases }));
  const most = ends.filter(({ score, count }) => score !== null && count).sort((a, b) => Number(b.sign === "✕ ") - Number(a.sign === "✕ ") || b.count - a.count)[0];
  const side = { "✕ ": ", below the threshold", "✓ ": ", from the threshold on" }[most?.sign ?? ""] ?? "";
  return (
    <div class="legend soft sm">
      <span><i />{filtered ? `width: cases of the filter, out of all ${whole(cases)}` : "width: cases"}</span>
      {failed > 0 && <span><i class="lf" />red: cases that failed</span>}
      <span>{failed > 0 && <i class="lb x" />}{none > 0 && <i class="lb n" />}<i class="lb" />bar in a node: {[failed && "failed", none && "no score", counts.plain ? "scored" : "passed"].filter(Boolean).join(", ")}</span>
      {metric.nodes.some((_, node) => itemCounts(metric, counts, node).length) && <span>bar of a list: its items</span>}
      {most && <span><b class={most.sign === "✕ " ? "fail" : ""}>{most.sign}{most.score}</b> · {whole(most.count)}: {most.count === 1 ? "1 case ends" : `${whole(most.count)} cases end`} with score {most.score}{side}</span>}
      {none > 0 && <span><b class="none">⊘</b> no score from here</span>}
    </div>
  );
}
