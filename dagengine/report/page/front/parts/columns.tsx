// The columns of the table of cases, as TanStack Table takes them.

import {
  columnVisibilityFeature, constructTable, createColumnHelper, rowSortingFeature, tableFeatures,
} from "@tanstack/table-core";
import { storeReactivityBindings } from "@tanstack/table-core/store-reactivity-bindings";
import type { Order, Row, Run, Score } from "../data/source.ts";
import { words } from "../data/names.ts";
import { money, SIGN, STATE, score, took, whole } from "./words.ts";
import type { ComponentChildren } from "preact";

const features = tableFeatures({
  coreReactivityFeature: storeReactivityBindings(),
  columnVisibilityFeature,
  rowSortingFeature,
});
const helper = createColumnHelper<typeof features, Row>();

interface Look {
  title: string;
  number?: boolean;
  /** Shown only when it is asked for. */
  more?: boolean;
  /** Sorts downwards at the first click. */
  down?: boolean;
  /** Cannot be sorted by. */
  fixed?: boolean;
  width?: string;
  cell: (row: Row) => ComponentChildren;
}

/** Columns by id; `metric` is the one in front. */
export function looks(run: Run, metric: number, shown: number[]): Map<string, Look> {
  const many = run.metrics.length > 1;
  const found = new Map<string, Look>();
  found.set("case", { title: "case", width: many ? "30%" : "36%", cell: nameCell });
  for (const place of many ? shown : [metric]) {
    const { name } = run.metrics[place]!;
    found.set(many ? `score${place}` : "score", {
      title: many ? name : "score",
      number: true,
      width: many ? (shown.length > 6 ? "72px" : undefined) : "76px",
      cell: (row) => (many ? <ScoreBar of={row.scores[place]!} /> : <Figure of={row.scores[place]!} />),
    });
  }
  if (many) {
    const failed = (row: Row) => whole(row.scores.filter((s) => s.state === "fail").length);
    found.set("failed", { title: "failed", number: true, down: true, width: "60px", cell: failed });
  }
  found.set("end", { title: "ended at, and why", more: many, cell: endCell });
  found.set("tags", { title: "tags", more: true, fixed: true, cell: (row) => row.tags.join(", ") });
  found.set("path", { title: "path", more: true, fixed: true, cell: (row) => <span class="two">{row.path}</span> });
  found.set("split", { title: "votes split", more: true, number: true, down: true, cell: (row) => whole(row.split) });
  found.set("questions", { title: "questions", more: true, number: true, down: true, cell: (row) => whole(row.questions) });
  found.set("tokens", { title: "tokens", more: true, number: true, down: true, cell: (row) => whole(row.tokens) });
  found.set("cost", { title: "money", more: true, number: true, down: true, cell: (row) => (row.cost === null ? "" : money(row.cost)) });
  found.set("time", { title: "time", more: true, number: true, down: true, cell: (row) => (row.seconds === null ? "" : took(row.seconds)) });
  found.set("label", { title: "label", more: true, fixed: true, cell: (row) => labelCell(row, run.metrics[metric]!.name) });
  found.set("data", { title: "place", more: true, number: true, cell: (row) => whole(row.index) });
  return found;
}

/** The table of a window of rows: its heads, visible cells and what a click on a head sorts by. */
export function tableOf(columns: Map<string, Look>, rows: Row[], order: Order, extra: string[], sort: (order: Order) => void) {
  const defs = [...columns].map(([id, look]) =>
    helper.accessor((row): unknown => row.index, { id, header: look.title, enableSorting: !look.fixed, sortDescFirst: look.down ?? false }),
  );
  const columnVisibility = Object.fromEntries([...columns].map(([id, { more }]) => [id, !more || extra.includes(id)]));
  const sorting = order.by === "default" ? [{ id: "score", desc: order.down }] : [{ id: order.by, desc: order.down }];
  return constructTable({
    features,
    columns: defs,
    data: rows,
    getRowId: (row) => String(row.index),
    manualSorting: true,
    enableSortingRemoval: false,
    state: { columnVisibility, sorting },
    onSortingChange: (change) => {
      const [first] = typeof change === "function" ? change(sorting) : change;
      if (first) sort({ by: first.id, down: first.desc });
    },
  });
}

function nameCell(row: Row): ComponentChildren {
  return (
    <>
      <span class="one name">{row.name}</span>
      <span class="one soft sm" dir="auto">{row.first}</span>
    </>
  );
}

function endCell(row: Row): ComponentChildren {
  return (
    <>
      <span class="one"><b>{row.end}</b></span>
      <span class="one soft wy" dir="auto">{row.why}</span>
    </>
  );
}

/** What people said of the case as a whole. */
function labelCell(row: Row, metric: string): ComponentChildren {
  const ends = row.said.filter((one) => !one.node && one.metric === metric);
  return <span class="two" dir="auto">{ends.map((one) => `${one.who}: ${one.outcome ?? one.answer ?? "cannot tell"}`).join(", ")}</span>;
}

function Figure({ of }: { of: Score }) {
  return of.score === null ? <span class="none">none</span> : <b>{score(of.score)}</b>;
}

/** A score over a thin bar; what failed has its sign, and what is missing its words. */
function ScoreBar({ of }: { of: Score }) {
  if (of.score === null) return <span class="none">{of.kind === "skipped" ? "skipped" : `${SIGN.none} ${words(of.kind ?? "none")}`}</span>;
  return (
    <span class={`sc${of.state === "fail" ? " x" : ""}`}>
      {of.state === "fail" && `${SIGN.fail} `}{score(of.score)}
      <u aria-hidden="true"><i style={{ width: `${100 * of.score}%` }} /></u>
    </span>
  );
}

/** The sign of a case: failed when any of its metrics did. */
export function Sign({ row, metric, many }: { row: Row; metric: number; many: boolean }) {
  const states = many ? row.scores.map((s) => s.state) : [row.scores[metric]!.state];
  const state = (["fail", "none", "pass", "plain"] as const).find((s) => states.includes(s)) ?? "plain";
  return <span class={`g ${state}`} role="img" aria-label={STATE[state]}>{SIGN[state]}</span>;
}
