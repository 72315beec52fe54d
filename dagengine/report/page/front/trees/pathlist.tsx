// The path of one case in a large tree: its answers as a list, and what was not taken as stubs that open.

import { useState } from "preact/hooks";
import type { CaseMetric, Metric, Part } from "../data/source.ts";
import { answerKey } from "../data/names.ts";
import { many, probability, SIGN } from "../parts/words.ts";
import { outline, type Item } from "./outline.tsx";
import { probabilities } from "./pathtree.tsx";

interface Props {
  metric: Metric;
  result: CaseMetric;
  choose: (part: Part, event: MouseEvent | KeyboardEvent) => void;
}

export function PathList({ metric, result, choose }: Props) {
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const taken = new Set(result.answers);
  const chances = probabilities(metric, result);
  const items = outline(metric);
  const toggle = (answer: number) => {
    const next = new Set(open);
    if (!next.delete(answer)) next.add(answer);
    setOpen(next);
  };
  const all = lines(metric, result, items, open);
  const path = all.filter(({ item }) => item.answer !== null && taken.has(item.answer));
  const rest = all.filter((line) => !path.includes(line));
  return (
    <>
      <ul class="outline onpath" aria-label={`Path in ${metric.name}`}>{path.map(shown)}</ul>
      {rest.length > 0 && <h3 class="not0">Not taken</h3>}
      {rest.length > 0 && <ul class="outline onpath" aria-label={`Not taken in ${metric.name}`}>{rest.map(shown)}</ul>}
    </>
  );

  function shown({ item: { node, answer }, depth, behind }: Line) {
    const at = { paddingLeft: `${Math.min(depth, 8) * 12}px` };
    if (answer === null) return <li key={`n${node}`} style={at}><span class="soft">{metric.nodes[node]!.name}</span></li>;
    const { verdict, score } = metric.answers[answer]!;
    const chance = chances.get(answer);
    const said = (
      <span>
        <span class="soft">{metric.nodes[node]!.name}</span> → {taken.has(answer) ? <b>{verdict}</b> : verdict}{" "}
        <span class="soft">{score !== null && `· score ${score}`}{chance !== undefined && ` · ${probability(chance)}`}</span>
      </span>
    );
    if (taken.has(answer)) {
      return (
        <li key={answer} style={at}>
          <button onClick={(event) => choose({ kind: "e", key: answerKey(metric, answer), not: false }, event)}>
            {said}{node === result.endNode && result.state === "fail" && <b class="fail">{SIGN.fail}</b>}
          </button>
        </li>
      );
    }
    return (
      <li key={answer} style={at} class="un">
        {behind ? (
          <button class="stub" aria-expanded={open.has(answer)} onClick={() => toggle(answer)}>{said}<span class="link nw">+{many(behind, "node")}</span></button>
        ) : <span class="leafline">{said}</span>}
      </li>
    );
  }
}

interface Line {
  item: Item;
  depth: number;
  /** Nodes behind an answer that was not taken. */
  behind: number;
}

/** The answers of nodes that ran, those taken followed by what they led to; the others, where they are opened. */
function lines(metric: Metric, result: CaseMetric, items: Item[], open: ReadonlySet<number>): Line[] {
  const ran = new Set(result.steps.map((step) => step.node));
  const taken = new Set(result.answers);
  const found: Line[] = [];
  let inside: number | null = null; // the depth of a stub whose lines come now
  let shown = true;
  for (const item of items) {
    if (!ran.has(item.node)) {
      // A node that ran may stand behind an answer that was not taken, where both lead to it.
      if (inside !== null && item.depth > inside && shown) found.push({ item, depth: item.depth, behind: 0 });
      continue;
    }
    if (item.answer === null) continue;
    const led = taken.has(item.answer);
    found.push({ item, depth: item.depth, behind: led ? 0 : reached(metric, item.answer, ran) });
    inside = led ? null : item.depth;
    shown = open.has(item.answer);
  }
  return found;
}

/** How many nodes an answer leads to that did not run. */
function reached(metric: Metric, answer: number, ran: ReadonlySet<number | null>): number {
  const seen = new Set<number>();
  const visit = (node: number | null): void => {
    if (node === null || seen.has(node) || ran.has(node)) return;
    seen.add(node);
    for (const one of metric.answers) if (one.node === node) visit(one.to);
  };
  visit(metric.answers[answer]!.to);
  return seen.size;
}
