// The columns of the table of cases, as TanStack Table takes them.

import {
  columnVisibilityFeature, constructTable, createColumnHelper, rowSortingFeature, tableFeatures,
} from "@tanstack/table-core";
import { storeReactivityBindings } from "@tanstack/table-core/store-reactivity-bindings";
import { arenaOf, TIE, type Arena, type Contestant } from "../data/contest.ts";
import type { Metric, Order, Row, Run, Score } from "../data/source.ts";
import { words } from "../data/names.ts";
import { many, money, SIGN, STATE, score, titled, took, whole } from "./words.ts";
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
  const several = run.metrics.length > 1;
  const arena = several ? null : arenaOf(run.metrics[metric]!);
  const drafts = new Map(run.drafts?.map((draft) => [draft.case, titled(draft)]));
  const found = new Map<string, Look>();
  found.set("case", { title: "case", width: several ? "22%" : arena ? "26%" : "36%", cell: (row) => nameCell(row, drafts.get(row.index)) });
  if (several) found.set("about", { title: "failed at, and why", fixed: true, cell: (row) => aboutCell(run, row) });
  if (arena) contestColumns(found, run.metrics[metric]!, arena);
  else for (const place of several ? shown : [metric]) {
    const { name } = run.metrics[place]!;
    found.set(several ? `score${place}` : "score", {
      title: several ? name : "score",
      number: true,
      width: `${several ? widthOf(name) : 76}px`,
      cell: (row) => (several ? <ScoreBar of={row.scores[place]!} /> : <Figure of={row.scores[place]!} />),
    });
  }
  if (!several && !arena) found.set("end", { title: "ended at, and why", cell: endCell });
  found.set("output", { title: "answer", more: true, fixed: true, width: "30%", cell: (row) => <span class="two" dir="auto">{row.output}</span> });
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

/** Pixels of a column, so that no word of its head is cut. */
function widthOf(name: string): number {
  return Math.max(64, Math.min(120, 16 + 7 * Math.max(...name.split(" ").map((word) => word.length))));
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

/** The name and the first words of a case; of a synthesis the draft, and what it is about. */
function nameCell(row: Row, draft: string | undefined): ComponentChildren {
  return (
    <>
      <span class="one name" dir="auto">{draft ?? row.name}</span>
      <span class="one soft sm" dir="auto">{draft ? row.name : row.first}</span>
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

/** The worst metric of a case, how many others failed with it, and why. */
function aboutCell(run: Run, row: Row): ComponentChildren {
  const of = row.scores[row.about]!;
  const name = run.metrics[row.about]!.name;
  const others = row.scores.filter((other, i) => i !== row.about && other.state === "fail").length;
  if (of.state === "pass" || of.state === "plain") {
    return (
      <>
        <span class="one soft">{of.state === "pass" ? `passed all ${row.scores.length}` : `${row.scores.length} scores`}</span>
        <span class="one soft">lowest: {name} {score(of.score!)}</span>
      </>
    );
  }
  return (
    <>
      <span class="one">
        <b>{name} <span class={of.state}>{of.score === null ? "no score" : score(of.score)}</span></b>
        {others > 0 && <span class="soft"> and {many(others, "other")}</span>}
      </span>
      <span class="one wy" dir="auto">{of.score === null ? `${words(of.kind ?? "")}: ` : row.end.includes(" → ") && !row.end.startsWith(`${name} →`) ? `${row.end}. ` : ""}{row.why?.split("\n", 1)[0]}</span>
    </>
  );
}

const FEW = 4; // contestants with a column each

/** The winner of an arena, the orders that each contestant won, and why. */
function contestColumns(columns: Map<string, Look>, metric: Metric, arena: Arena): void {
  const won = (row: Row, of: Contestant) => row.votes.find(([answer]) => answer === of.votes)?.[1] ?? 0;
  const winner = (row: Row) => (row.scores[0]!.score === null ? null : row.end.slice(arena.winner.length + 3));
  const all = [...arena.contestants, arena.tie];
  columns.set("end", { title: "winner", width: "26%", cell: (row) => (
    <>
      <span class="one">{winner(row) === null ? <b class="none">⊘ no score</b> : winner(row) === TIE ? <span class="soft">{TIE}</span> : <b>{winner(row)}</b>}</span>
      <span class="one soft sm">
        {winner(row) === null ? words(row.scores[0]!.kind ?? "") : row.split ? "changed with the order" : "all orders agree"}
        {metric.threshold !== null && winner(row) !== null && ` · ${SIGN[row.scores[0]!.state]} ${score(row.scores[0]!.score!)}`}
      </span>
    </>
  ) });
  if (arena.contestants.length <= FEW) {
    for (const of of all) {
      columns.set(`votes ${of.name}`, { title: of.name.length > 9 ? `${of.name.slice(0, 8)}…` : of.name, number: true, fixed: true, width: "68px", cell: (row) => {
        const count = won(row, of);
        const cast = row.votes.reduce((sum, [answer, votes]) => sum + (all.some((one) => one.votes === answer) ? votes : 0), 0);
        return 2 * count > cast ? <b>{count}</b> : <span class="soft">{count || "·"}</span>;
      } });
    }
  }
  columns.set("why", { title: "why", fixed: true, cell: (row) => <span class="two wy" dir="auto">{row.why}</span> });
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
  if (of.score === null) return <span class="none one" title={words(of.kind ?? "")}>{of.kind === "skipped" ? "skipped" : `${SIGN.none} ${words(of.kind ?? "none")}`}</span>;
  return (
    <span class={`sc${of.state === "fail" ? " x" : ""}`}>
      {of.state === "fail" && `${SIGN.fail} `}{score(of.score)}
      <u aria-hidden="true"><i style={{ width: `${100 * of.score}%` }} /></u>
    </span>
  );
}

/** The sign of a case: failed when any of its metrics did. */
export function Sign({ row, metric, several }: { row: Row; metric: number; several: boolean }) {
  const states = several ? row.scores.map((s) => s.state) : [row.scores[metric]!.state];
  const state = (["fail", "none", "pass", "plain"] as const).find((s) => states.includes(s)) ?? "plain";
  return <span class={`g ${state}`} role="img" aria-label={STATE[state]}>{SIGN[state]}</span>;
}
