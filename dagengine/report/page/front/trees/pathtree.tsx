// The path of one case in its tree, small: what was not taken is pale.

import type { CaseMetric, Layout, Metric, Part } from "../data/source.ts";
import { answerKey, answerName } from "../data/names.ts";
import { pressing } from "../parts/chart.tsx";
import { probability } from "../parts/words.ts";
import { short } from "./tree.tsx";

interface Props {
  metric: Metric;
  layout: Layout;
  result: CaseMetric;
  choose: (part: Part, event: MouseEvent | KeyboardEvent) => void;
}

/** The probability of every answer, of nodes whose judge gave one. */
export function probabilities(metric: Metric, result: CaseMetric): Map<number, number> {
  const found = new Map<number, number>();
  for (const { node, odds } of result.steps) {
    for (const [said, chance] of odds ?? []) {
      const answer = metric.answers.findIndex((one) => one.node === node && one.verdict === said);
      if (answer >= 0) found.set(answer, chance);
    }
  }
  return found;
}

const SIDE = 320; // pixels that the picture has on the screen

/** The letters that are eleven pixels high on the screen, in units of the picture. */
function letters(layout: Layout): number {
  return Math.max(1, layout.width / SIDE) * 11;
}

/** How many letters of a name a box holds. */
function room(layout: Layout, width: number): number {
  return Math.max(4, Math.floor(width / (letters(layout) * 0.58)));
}

/** Whether every name has room in the picture beside a case. */
export function hasRoom(metric: Metric, layout: Layout): boolean {
  return layout.nodes.every((box, node) => box === null || metric.nodes[node]!.name.length <= room(layout, box[2]));
}

export function PathTree({ metric, layout, result, choose }: Props) {
  const ran = new Set(result.steps.map((step) => step.node));
  const taken = new Set(result.answers);
  const chances = probabilities(metric, result);
  const size = letters(layout);
  return (
    <svg class="tree path" viewBox={`-2 -2 ${layout.width + 4} ${layout.height + 4}`} style={{ maxWidth: `${layout.width + 4}px` }} width="100%" role="group" aria-label={`Path in ${metric.name}`}>
      {layout.feeds.map((feed) => <path key={`${feed.from}-${feed.to}`} d={feed.path} class={`feeds${ran.has(feed.to) ? "" : " dim"}`} />)}
      {layout.edges.map((edge, answer) => edge && (
        <path key={answer} d={edge.path} class={taken.has(answer) ? "flow on" : "flow dim"} stroke-width={taken.has(answer) ? 4 : 1.25} />
      ))}
      {metric.nodes.map(({ name, kind }, node) => {
        const box = layout.nodes[node];
        if (!box) return null;
        const [x, y, width, height] = box;
        return (
          <g key={node} class={`n${ran.has(node) ? " on" : " un dim"}`}>
            <rect x={x} y={y} width={width} height={height} rx={kind === "code" ? 0 : 6} />
            <text class="t" x={x + width / 2} y={y + height / 2 + size / 3} style={{ fontSize: `${size}px` }} text-anchor="middle">
              {short(name, room(layout, width))}
            </text>
          </g>
        );
      })}
      {metric.answers.map(({ verdict, score }, answer) => {
        const edge = layout.edges[answer];
        if (!edge) return null;
        const leaf = layout.leaves[answer];
        const on = taken.has(answer);
        const chance = chances.has(answer) ? probability(chances.get(answer)!) : null;
        const press = (event: MouseEvent | KeyboardEvent) => choose({ kind: "e", key: answerKey(metric, answer), not: false }, event);
        const more = on ? {
          role: "button" as const, tabindex: 0, "aria-label": `${short(verdict, 24)}: all cases with ${answerName(metric, answer)}`, onClick: press,
          onKeyDown: (event: KeyboardEvent) => pressing(event) && press(event),
        } : {};
        return (
          <g key={answer} class={`e${on ? "" : " un dim"}`} {...more}>
            {on && edge.label && <text class="a" x={edge.label[0]} y={edge.label[1] + (chance ? 0 : 6)} style={{ fontSize: `${size}px` }}>{short(verdict, 24)}</text>}
            {chance && edge.label && <text class="chance" x={edge.label[0]} y={edge.label[1] + (on ? size * 1.1 : 6)} style={{ fontSize: `${size}px` }}>{chance}</text>}
            {leaf && score !== null && (
              <g class={`leaf${on ? ` on ${result.state === "fail" ? "x" : ""}` : " un"}`}>
                {" "}
                <rect x={leaf[0]} y={leaf[1]} width={leaf[2]} height={leaf[3]} rx={leaf[3] / 2} />
                <text class="a" x={leaf[0] + leaf[2] / 2} y={leaf[1] + leaf[3] / 2 + size / 3} style={{ fontSize: `${size}px` }} text-anchor="middle">{score}</text>
              </g>
            )}
          </g>
        );
      })}
    </svg>
  );
}
