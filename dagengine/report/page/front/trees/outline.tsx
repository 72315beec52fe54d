// The tree as a list: what a phone shows, and a screen reader reads.

import { useMemo, useState } from "preact/hooks";
import type { Counts, Metric, Part } from "../data/source.ts";
import { answerKey } from "../data/names.ts";
import { many, whole } from "../parts/words.ts";
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

const FOLDS = 24; // answers of a tree that is not folded
const SHARE = 0.1; // of the failures, or of the cases: what more came by is open

export function Outline({ metric, counts, cases, parts, choose }: Props) {
  const [toggled, setToggled] = useState<ReadonlySet<number>>(new Set());
  const all = useMemo(() => outline(metric), [metric]);
  const of = Math.max(1, counts.failed || counts.cases);
  const large = all.length > FOLDS;
  const isOpen = (answer: number) => {
    const { failed, cases } = counts.answers[answer]!;
    return (!large || (counts.failed ? failed : cases) >= SHARE * of) !== toggled.has(answer);
  };
  const toggle = (answer: number) => {
    const next = new Set(toggled);
    if (!next.delete(answer)) next.add(answer);
    setToggled(next);
  };
  let closed: number | null = null; // the depth of an answer whose subtree is not shown
  return (
    <ul class="outline" aria-label={`Tree of ${metric.name} as an outline`}>
      {all.map((item, i) => {
        if (closed !== null && item.depth > closed) return null;
        closed = null;
        const behind = item.answer === null ? 0 : below(all, i);
        const open = !behind || isOpen(item.answer!);
        if (!open) closed = item.depth;
        const fold = large && behind > 0 ? { open, behind, toggle: () => toggle(item.answer!) } : null;
        return <Line key={`${item.node} ${item.answer}`} {...{ metric, counts, cases, parts, choose, item, fold }} />;
      })}
    </ul>
  );
}

/** How many nodes stand below a line. */
function below(items: Item[], at: number): number {
  const nodes = new Set<number>();
  for (let i = at + 1; i < items.length && items[i]!.depth > items[at]!.depth; i++) nodes.add(items[i]!.node);
  return nodes.size;
}

interface Fold {
  open: boolean;
  behind: number;
  toggle: () => void;
}

function Line({ metric, counts, cases, parts, choose, item, fold }: Props & { item: Item; fold: Fold | null }) {
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
          <i class="x" style={share(count.failed)} /><i class="n" style={share(count.none)} /><i style={share(count.cases - count.failed - count.none)} />
        </span>
      </button>
      {fold && (
        <button class="link-b sm unfold" aria-expanded={fold.open} onClick={fold.toggle}>
          {fold.open ? "▾ fold" : `▸ ${many(fold.behind, "node")}, ${whole(count.failed)} failed`}
        </button>
      )}
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
