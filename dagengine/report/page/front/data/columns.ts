// The packed columns of one metric as sets of cases.

import { Bits } from "./bits.ts";
import type { MetricColumns } from "./packed.ts";
import type { Metric, State } from "./source.ts";
import { endName } from "./names.ts";

const STATES: Record<string, State> = { f: "fail", n: "none", p: "pass", "-": "plain" };

export class Columns {
  readonly states: Record<State, Bits>;
  readonly answers: Bits[];
  readonly nodes: Bits[];
  readonly bins: Bits[];
  readonly unsure: Bits;
  readonly split: Bits[];
  /** Cases that failed, or have no score, by where they ended. */
  readonly ends = new Map<string, { bits: Bits; way: number; state: "fail" | "none" }>();

  constructor(
    readonly metric: Metric,
    readonly packed: MetricColumns,
    readonly size: number,
  ) {
    const empty = () => new Bits(size);
    this.states = { fail: empty(), none: empty(), pass: empty(), plain: empty() };
    this.answers = metric.answers.map(empty);
    this.nodes = metric.nodes.map(empty);
    this.split = metric.answers.map(empty);
    this.bins = Array.from({ length: 11 }, empty);
    this.unsure = empty();
    for (let row = 0; row < size; row++) this.add(row);
    for (const [answer, rows] of Object.entries(packed.items)) {
      for (const [row] of rows) this.answers[Number(answer)]!.add(row);
    }
    for (const [answer, rows] of Object.entries(packed.split)) {
      for (const row of rows) {
        this.split[Number(answer)]!.add(row);
        this.unsure.add(row);
      }
    }
  }

  /** The scores of a set of cases that have one. */
  scores(of: Bits): Float64Array {
    return Float64Array.from(of.places(), (row) => this.packed.score[row] ?? NaN).filter((score) => score >= 0);
  }

  state(row: number): State {
    return STATES[this.packed.state[row] ?? "n"]!;
  }

  private add(row: number): void {
    const state = this.state(row);
    this.states[state].add(row);
    const score = this.packed.score[row];
    if (score != null) this.bins[bin(score)]!.add(row);
    const number = this.packed.way[row]!;
    const way = this.packed.ways[number]!;
    for (const answer of way.answers) this.answers[answer]!.add(row);
    for (const node of way.nodes) this.nodes[node]!.add(row);
    if (state !== "fail" && state !== "none") return;
    const key = endName(this.metric, way, state);
    const end = this.ends.get(key) ?? { bits: new Bits(this.size), way: number, state };
    end.bits.add(row);
    this.ends.set(key, end);
  }
}

/** The bin of a score: 0, 0.1 … 1, rounded to the nearest. */
function bin(score: number): number {
  return Math.round(score * 10);
}
