// The tree as a list: what a phone shows, and a screen reader reads.

import type { Counts, Metric, Part } from "../data/source.ts";
import { answerKey } from "../data/names.ts";
import { whole } from "../parts/words.ts";
import { kindWord } from "./tree.tsx";

export interface Item {
  depth: number;
  node: number;
  answer: number | null;
  /** The node that it leads to, when that stands above already. */
  again: number | null;
}

interface Props {
  metric: Metric;
  counts: Counts;
  cases: number;
  parts: Part[];
  choose: (part: Part, event: MouseEvent | KeyboardEvent) => void;
}

export function Outline({ metric, counts, cases, parts, choose }: Props) {
  const items = outline(metric);
  return (
    <ul class="outline" aria-label={`Tree of ${metric.name} as an outline`}>
      {items.map((item) => <Line key={`${item.node} ${item.answer}`} {...{ metric, counts, cases, parts, choose, item }} />)}
    </ul>
  );
}

function Line({ metric, counts, cases, parts, choose, item }: Props & { item: Item }) {
  const { node, answer, depth, again } = item;
  const { name, kind } = metric.nodes[node]!;
  const part: Part = answer === null ? { kind: "n", key: name, not: false } : { kind: "e", key: answerKey(metric, answer), not: false };
  const count = answer === null ? counts.nodes[node]! : counts.answers[answer]!;
  const mine = parts.some((p) => p.kind === part.kind && p.key === part.key);
  const target = answer === null ? null : metric.answers[answer]!;
  const share = (of: number) => ({ width: `${(100 * of) / Math.max(1, cases)}%` });
  return (
    <li style={{ paddingLeft: `${Math.min(depth, 8) * 16}px` }}>
      <button aria-pressed={mine} class={count.cases ? "" : "un"} onClick={(event) => choose(part, event)}>
        <span>
          <span class="soft">{name}</span>
          {target && <> → <b>{target.verdict}</b></>}{" "}
          <span class="soft">
            {!target && `· ${kindWord(kind)}`}
            {target && target.score !== null && `· score ${target.score}`}
            {again !== null && `· goes to ${metric.nodes[again]!.name}, above`}
          </span>
        </span>
        <span class="nw">
          {whole(count.cases)}{count.failed > 0 && <b class="fail"> ✕ {whole(count.failed)}</b>}
        </span>
        <span class="share" aria-hidden="true">
          <i style={share(count.cases - count.failed)} /><i class="x" style={share(count.failed)} />
        </span>
      </button>
    </li>
  );
}

/** Answers in the order of the tree, by depth; a shared node stands once, nodes without answers as themselves. */
export function outline(metric: Metric): Item[] {
  const items: Item[] = [];
  const seen = new Set<number>();
  const visit = (node: number, depth: number): void => {
    seen.add(node);
    const answers = metric.answers.flatMap((a, answer) => (a.node === node ? [answer] : []));
    if (!answers.length) items.push({ depth, node, answer: null, again: null });
    for (const answer of answers) {
      const { to } = metric.answers[answer]!;
      const again = to !== null && seen.has(to) ? to : null;
      items.push({ depth, node, answer, again });
      if (to !== null && again === null) visit(to, depth + 1);
    }
  };
  const led = new Set(metric.answers.map((answer) => answer.to));
  metric.nodes.forEach(({ kind }, node) => {
    if (kind !== "field" && !led.has(node) && !seen.has(node)) visit(node, 0);
  });
  return items;
}
