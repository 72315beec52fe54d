// The source of a file that holds its own data: sets of cases as bits, texts on demand.

import { Bits } from "./bits.ts";
import { Blocks } from "./blocks.ts";
import { Columns } from "./columns.ts";
import { contestOf } from "./contest.ts";
import { answerKey, answerName, ended } from "./names.ts";
import { element, text, unpacked, type Head, type Index, type PackedRow, type PackedStep } from "./packed.ts";
import { Server, type Prompt } from "./server.ts";
import { scoresOf } from "./statistics.ts";
import type {
  Case, CaseMetric, Chosen, Counts, DayGroup, End, Filter, Many, Metric, Order, Part, Row, Run, Source, Step, Window,
} from "./source.ts";

const ORDER = { fail: 0, none: 1, pass: 2, plain: 3 };
const SHOWN = 9; // ends whose reasons are read
const PREVIEW = 240; // characters of a text in a table
const UNTOLD = ["name", "tags", "comments", "type", "role"]; // fields that say nothing of what is judged

/** An end with the place of its first case, whose reason is told. */
type Found = End & { first: number };

export class Embedded implements Source {
  private readonly columns: Columns[];
  private readonly all: Bits;
  private found: { text: string; bits: Promise<Bits> } | null = null;
  private readonly voted = new Map<number, Map<number, [number, number][]>>();
  /** Every row of the run, by metric and order: a filter only takes some out. */
  private readonly sorted = new Map<string, Int32Array>();
  /** Cases by their one state, over all metrics. */
  private readonly states: Record<"any" | "missing" | "passed", Bits>;

  private constructor(
    readonly run: Run,
    readonly server: Server | null,
    private readonly index: Index,
    private readonly blocks: Blocks,
    private readonly asked: Blocks,
  ) {
    this.columns = run.metrics.map((m, i) => new Columns(m, index.metrics[i]!, run.cases));
    this.all = Bits.all(run.cases);
    const [any, none] = [new Bits(run.cases), new Bits(run.cases)];
    for (const { states } of this.columns) any.join(states.fail), none.join(states.none);
    const passed = this.all.copy().keep(any, true).keep(none, true);
    this.states = { any, missing: none.keep(any, true), passed };
  }

  /** Reads the parts of the page. Raises an error for a file that is not whole. */
  static async open(): Promise<Embedded> {
    const head = JSON.parse(element("head")) as Head;
    const index = JSON.parse(text(await unpacked(element("index")))) as Index;
    const blocks = new Blocks(head.blocks, (block) => element(`texts-${block}`));
    const asked = new Blocks(head.prompts, (block) => element(`prompts-${block}`));
    return new Embedded(head.run, head.server ? new Server(head.server) : null, index, blocks, asked);
  }

  // Filters.

  private async matching(filter: Filter): Promise<Bits> {
    const kept = this.all.copy();
    for (const part of filter.parts) {
      const bits = this.part(filter.metric, part);
      if (bits) kept.keep(bits, part.not);
    }
    if (filter.text) kept.keep(await this.search(filter.text));
    return kept;
  }

  /** The cases of one condition; null when the run does not have what it names. */
  private part(metric: number, { kind, key }: Part): Bits | null {
    const columns = this.columns[metric]!;
    if (kind === "e") {
      const answer = columns.metric.answers.findIndex((_, i) => answerKey(columns.metric, i) === key);
      return columns.answers[answer] ?? null;
    }
    if (kind === "n") return columns.nodes[columns.metric.nodes.findIndex((n) => n.name === key)] ?? null;
    if (kind === "end") return columns.ends.get(key)?.bits ?? null;
    if (kind === "day" || kind === "stratum") return this.grouped(kind === "day" ? 0 : 1, key);
    if (kind === "b") return columns.bins[Math.round(Number(key) * 10)] ?? null;
    return this.together(key);
  }

  /** The cases of a day, or of a stratum. */
  private grouped(place: 0 | 1, key: string): Bits | null {
    const { all, of } = this.index.groups ?? { all: [], of: [] };
    if (!all.some((group) => group[place] === key)) return null;
    const bits = new Bits(this.run.cases);
    of.forEach((group, row) => all[group]![place] === key && bits.add(row));
    return bits;
  }

  private together(key: string): Bits | null {
    const names = new Set(key.split(" + "));
    const bits = this.all.copy();
    for (const { metric, states } of this.columns) bits.keep(states.fail, !names.delete(metric.name));
    return names.size ? null : bits;
  }

  private search(text: string): Promise<Bits> {
    if (this.found?.text !== text) this.found = { text, bits: this.searched(text) };
    return this.found.bits;
  }

  async prepare(): Promise<void> {
    await this.blocks.prepare();
  }

  private async searched(text: string): Promise<Bits> {
    const bits = new Bits(this.run.cases);
    const slots = new Set(await this.blocks.search(text));
    const needle = text.toLowerCase();
    this.index.slot.forEach((slot, row) => {
      if (slots.has(slot) || this.index.name[row]!.toLowerCase().includes(needle)) bits.add(row);
    });
    return bits;
  }

  // Counts.

  async counts(filter: Filter): Promise<Counts> {
    const kept = await this.matching(filter);
    const columns = this.columns[filter.metric]!;
    const { fail, none, pass, plain } = columns.states;
    const failed = kept.copy().keep(fail);
    const missing = kept.copy().keep(none);
    const count = (bits: Bits) => ({
      cases: kept.common(bits), failed: failed.common(bits), none: missing.common(bits),
    });
    const nodes = columns.nodes.map((bits) => ({ ...count(bits), broken: {} as Record<string, number> }));
    for (const row of missing.places()) {
      const failure = columns.packed.ways[columns.packed.way[row]!]!.failure;
      if (failure?.[1] == null) continue;
      const { broken } = nodes[failure[1]]!;
      broken[failure[0]] = (broken[failure[0]] ?? 0) + 1;
    }
    return {
      cases: kept.count(),
      passed: kept.common(pass),
      failed: failed.count(),
      none: missing.count(),
      plain: kept.common(plain),
      unsure: kept.common(columns.unsure),
      bins: this.bins(columns, kept),
      scores: scoresOf(columns.scores(kept)),
      answers: columns.answers.map((bits, answer) => ({
        ...count(bits),
        split: kept.common(columns.split[answer]!),
        items: sum(columns.packed.items[answer] ?? [], kept),
      })),
      nodes,
    };
  }

  private bins(columns: Columns, kept: Bits): { passed: number; failed: number }[] {
    const failed = kept.copy().keep(columns.states.fail);
    return columns.bins.map((bits) => {
      const below = failed.common(bits);
      return { failed: below, passed: kept.common(bits) - below };
    });
  }

  async ends(filter: Filter): Promise<End[]> {
    const kept = await this.matching(filter);
    const columns = this.columns[filter.metric]!;
    const found: Found[] = [];
    for (const [key, { bits, way, state }] of columns.ends) {
      const here = kept.copy().keep(bits);
      const cases = here.count();
      if (!cases) continue;
      const [node, answer] = columns.packed.ways[way]!.end;
      found.push({ key, label: key, state, node, answer, cases, why: "", first: here.places()[0]! });
    }
    return found.sort((a, b) => ORDER[a.state] - ORDER[b.state] || b.cases - a.cases);
  }

  async whys(ends: End[], metric: number): Promise<End[]> {
    const told = (ends as Found[]).map(async (end, i) =>
      (i < SHOWN ? { ...end, why: (await this.texts(end.first, metric)).why ?? "" } : end));
    return await Promise.all(told);
  }

  async days(filter: Filter): Promise<DayGroup[]> {
    const kept = await this.matching(filter);
    const columns = this.columns[filter.metric]!;
    const groups = (this.index.groups?.all ?? []).map(([day, stratum, probability]) =>
      ({ day: day ?? "", stratum, probability, cases: 0, passed: 0, failed: 0, none: 0, scored: 0, sum: 0, squares: 0 }));
    for (const row of this.index.groups ? kept.places() : []) {
      const group = groups[this.index.groups!.of[row]!]!;
      const [state, score] = [columns.state(row), columns.packed.score[row]];
      group.cases += 1;
      group.passed += Number(state === "pass");
      group.failed += Number(state === "fail");
      group.none += Number(state === "none");
      if (score == null) continue;
      group.scored += 1;
      group.sum += score;
      group.squares += score * score;
    }
    return groups.filter(({ day, cases }) => day && cases);
  }

  async many(filter: Filter): Promise<Many> {
    const kept = await this.matching(filter);
    const sets = new Map<string, number>();
    const bad = kept.copy().keep(this.states.any);
    for (const row of bad.places()) {
      let key = "";
      this.columns.forEach(({ states }, i) => states.fail.has(row) && (key += key ? `,${i}` : i));
      sets.set(key, (sets.get(key) ?? 0) + 1);
    }
    return {
      strips: this.columns.map((columns) => ({
        failed: kept.common(columns.states.fail),
        none: kept.common(columns.states.none),
        passed: kept.common(columns.states.pass),
        mean: scoresOf(columns.scores(kept))?.mean ?? null,
      })),
      together: [...sets]
        .map(([key, cases]) => ({ metrics: key.split(",").map(Number), cases }))
        .sort((a, b) => b.cases - a.cases),
      any: bad.count(),
      missing: kept.common(this.states.missing),
      passed: kept.common(this.states.passed),
    };
  }

  // Rows.

  private async order(filter: Filter, chosen: Chosen, order: Order): Promise<Int32Array> {
    const kept = (await this.matching(filter)).keep(this.chosen(filter.metric, chosen));
    const key = `${filter.metric} ${order.by} ${order.down}`;
    const rows = this.sorted.get(key) ?? this.arranged(this.all.places(), filter.metric, order);
    this.sorted.set(key, rows);
    return rows.filter((row) => kept.has(row));
  }

  private chosen(metric: number, chosen: Chosen): Bits {
    const { states, unsure } = this.columns[metric]!;
    if (chosen === "all") return this.all;
    if (chosen === "unsure") return unsure;
    if (chosen === "fail" || chosen === "none" || chosen === "pass") return states[chosen];
    return this.states[chosen];
  }

  private arranged(rows: Int32Array, metric: number, { by, down }: Order): Int32Array {
    const keys = by === "default" ? this.defaults(rows, metric) : this.keys(rows, metric, by);
    const places = new Uint32Array(rows.length).map((_, i) => i);
    const sign = down ? -1 : 1;
    // What has no key stays last either way; equal keys stay in the order of the data.
    places.sort((a, b) => {
      const x = keys[a]!;
      const y = keys[b]!;
      if (x === y) return a - b;
      if (x === Infinity || y === Infinity) return x === Infinity ? 1 : -1;
      return x < y ? -sign : sign;
    });
    return Int32Array.from(places, (place) => rows[place]!);
  }

  /** State, then score, then end, in one number each. */
  private defaults(rows: Int32Array, metric: number): Float64Array {
    const columns = this.columns[metric]!;
    const names = columns.packed.ways.map((way) => ended(columns.metric, way, "fail", null));
    const ranks = ranked(names);
    return Float64Array.from(rows, (row) => {
      const score = columns.packed.score[row] ?? 2;
      const state = ORDER[columns.state(row)];
      return state * 4e9 + Math.round(score * 1e9) + ranks[columns.packed.way[row]!]! / names.length;
    });
  }

  private keys(rows: Int32Array, metric: number, by: string): Float64Array {
    const columns = this.columns[metric]!;
    const other = /^score(\d+)$/.exec(by);
    const { packed } = other ? (this.columns[Number(other[1])] ?? columns) : columns;
    const value = this.numbers(by, columns);
    if (value) return Float64Array.from(rows, value);
    if (by === "case") {
      const ranks = ranked(Array.from(rows, (row) => this.index.name[row]!));
      return Float64Array.from(ranks);
    }
    if (by === "end") {
      const ranks = ranked(packed.ways.map((way) => ended(columns.metric, way, "fail", null)));
      return Float64Array.from(rows, (row) => ranks[packed.way[row]!]!);
    }
    return Float64Array.from(rows, (row) => packed.score[row] ?? Infinity);
  }

  private numbers(by: string, columns: Columns): ((row: number) => number) | null {
    const { packed } = columns;
    if (by === "tokens") return (row) => packed.tokens[row]!;
    if (by === "cost") return (row) => packed.cost?.[row] ?? Infinity;
    if (by === "time") return (row) => packed.seconds?.[row] ?? Infinity;
    if (by === "questions") return (row) => packed.questions[row]!;
    if (by === "state") return (row) => ORDER[columns.state(row)];
    if (by === "split") return (row) => this.splits(columns, row);
    if (by === "worst") return (row) => this.columns.reduce((least, c) => Math.min(least, badness(c, row)), Infinity);
    if (by === "data") return (row) => row;
    return null;
  }

  private splits(columns: Columns, row: number): number {
    return columns.unsure.has(row) ? columns.split.filter((bits) => bits.has(row)).length : 0;
  }

  async rows(filter: Filter, chosen: Chosen, order: Order, from: number, to: number): Promise<Window> {
    const rows = await this.order(filter, chosen, order);
    const shown = Array.from(rows.slice(from, to), (row) => this.row(row, filter.metric));
    return { total: rows.length, rows: shown };
  }

  async previews(rows: Row[]): Promise<Row[]> {
    return await Promise.all(rows.map(async (row) => ({ ...row, ...(await this.texts(this.at(row.index), row.about)) })));
  }

  /** The metric that a row tells of: that in front, or of several the worst. */
  private told(row: number, front: number): number {
    if (this.columns.length === 1) return front;
    const order = this.columns.map((columns) => badness(columns, row));
    return order.indexOf(Math.min(...order));
  }

  /** Items by answer of every row that has some. */
  private votes(metric: number): Map<number, [number, number][]> {
    const known = this.voted.get(metric);
    if (known) return known;
    const votes = new Map<number, [number, number][]>();
    for (const [answer, rows] of Object.entries(this.columns[metric]!.packed.items)) {
      for (const [row, count] of rows) votes.set(row, [...(votes.get(row) ?? []), [Number(answer), count]]);
    }
    this.voted.set(metric, votes);
    return votes;
  }

  private row(row: number, front: number): Row {
    const metric = this.told(row, front);
    const columns = this.columns[metric]!;
    const { packed } = columns;
    const way = packed.ways[packed.way[row]!]!;
    return {
      index: this.number(row),
      name: this.index.name[row]!,
      scores: this.columns.map((c) => ({
        state: c.state(row),
        score: c.packed.score[row] ?? null,
        kind: c.packed.ways[c.packed.way[row]!]!.failure?.[0] ?? null,
      })),
      about: metric,
      votes: this.votes(metric).get(row) ?? [],
      end: ended(columns.metric, way, columns.state(row), packed.score[row] ?? null),
      path: way.answers.map((answer) => answerName(columns.metric, answer)).join(", "),
      split: this.splits(columns, row),
      questions: packed.questions[row]!,
      tokens: packed.tokens[row]!,
      cost: packed.cost?.[row] ?? null,
      seconds: packed.seconds?.[row] ?? null,
      said: this.index.said[row] ?? [],
      tags: (this.index.tagged?.[row] ?? []).map((tag) => this.index.tags[tag]!),
      why: null,
      first: null,
      output: null,
    };
  }

  /** What a table shows of the texts of a case. */
  private async texts(row: number, metric: number): Promise<Pick<Row, "why" | "first" | "output">> {
    const packed = await this.packed(row);
    if (!packed) return { why: null, first: null, output: null };
    const [fields, metrics] = packed;
    const [reason, failure, steps] = metrics[metric]!;
    const columns = this.columns[metric]!;
    const [end] = columns.packed.ways[columns.packed.way[row]!]!.end;
    const step = steps.find(([node]) => node === end);
    const code = end != null && columns.metric.nodes[end]!.kind === "code";
    const decided = code && step?.[2] != null ? "decided by code" : null;
    const why = failure?.message ?? contestOf(step?.[3])?.reason ?? step?.[4] ?? decided ?? this.reason(columns.metric, reason, steps);
    const first = firstText(fields);
    const output = fields?.["actual_output"];
    return { why: why == null ? null : cut(why), output: typeof output === "string" ? cut(output) : null, first: first === null ? null : cut(first.trimStart().split("\n", 1)[0]!) };
  }

  private reason(metric: Metric, reason: string | true | null, steps: PackedStep[]): string | null {
    return reason === true ? composed(metric, steps) : reason;
  }

  private async packed(row: number): Promise<PackedRow | null> {
    const slot = this.index.slot[row]!;
    return slot < 0 ? null : await this.blocks.row<PackedRow>(slot);
  }

  private number(row: number): number {
    return this.index.number?.[row] ?? row;
  }

  private at(index: number): number {
    return this.index.number ? this.index.number.indexOf(index) : index;
  }

  async place(filter: Filter, chosen: Chosen, order: Order, index: number): Promise<number> {
    return (await this.order(filter, chosen, order)).indexOf(this.at(index));
  }

  async find(name: string): Promise<number | null> {
    let row = this.index.name.indexOf(name);
    if (row < 0 && /^\d+$/.test(name)) row = this.at(Number(name));
    return row >= 0 && row < this.run.cases ? this.number(row) : null;
  }

  async one(index: number): Promise<Case | null> {
    const row = this.at(index);
    if (row < 0 || row >= this.run.cases) return null;
    const packed = await this.packed(row);
    return {
      index,
      name: this.index.name[row]!,
      hash: this.index.hash[row] || null,
      fields: packed?.[0] ?? null,
      metrics: this.columns.map((columns, i) => this.metric(columns, row, packed?.[1][i])),
      said: this.index.said[row] ?? [],
      seconds: packed?.[2] ?? null,
    };
  }

  async prompts(index: number): Promise<Prompt[][][] | null> {
    if (this.run.noPrompts !== null) return null;
    if (this.server) return this.server.prompts(index);
    const slot = this.index.slot[this.at(index)] ?? -1;
    return slot < 0 ? null : await this.asked.row<Prompt[][][]>(slot);
  }

  private metric(columns: Columns, row: number, texts: PackedRow[1][number] | undefined): CaseMetric {
    const { packed, metric } = columns;
    const way = packed.ways[packed.way[row]!]!;
    const state = columns.state(row);
    const score = packed.score[row] ?? null;
    const failure = texts?.[1] ?? null;
    return {
      state,
      score,
      kind: way.failure?.[0] ?? null,
      end: ended(metric, way, state, score),
      endNode: way.failure ? way.failure[1] : way.end[0],
      reason: texts ? this.reason(metric, texts[0], texts[2]) : null,
      failure: failure && { ...failure, raw: failure.raw ?? null },
      answers: way.answers,
      steps: (texts?.[2] ?? []).map((step) => this.step(columns, step)),
      odds: texts?.[3] ?? null,
    };
  }

  private step({ metric }: Columns, packed: PackedStep): Step {
    const [place, outcome, verdict, output, reason, score, mode, confidence, votes, tokens, kind, cost, seconds, odds, calls, cached, quotes, spans] = packed;
    const node = typeof place === "number" ? metric.nodes[place] : undefined;
    return {
      node: typeof place === "number" ? place : null,
      name: node?.name ?? String(place),
      kind: kind ?? node?.kind ?? "",
      outcome,
      verdict: verdict ?? null,
      output: output ?? null,
      reason: reason ?? null,
      score: score ?? null,
      mode: mode ?? null,
      confidence: confidence ?? null,
      votes: votes ?? [],
      tokens: tokens ?? 0,
      cost: cost ?? null,
      seconds: seconds ?? null,
      odds: odds ?? null,
      calls: calls ?? null,
      cached: cached ?? 0,
      quotes: quotes ?? [],
      spans: spans ?? [],
    };
  }

  async lines(filter: Filter, chosen: Chosen): Promise<string | null> {
    const rows = await this.order(filter, chosen, { by: "data", down: false });
    const lines: string[] = [];
    for (const row of rows) {
      const fields = (await this.packed(row))?.[0];
      if (!fields) return null;
      lines.push(`${JSON.stringify(fields)}\n`);
    }
    return lines.join("");
  }
}

/** The reason of a metric that says what its steps said, as it was left out of the file. */
function composed(metric: Metric, steps: PackedStep[]): string {
  const lines = steps.flatMap(([node, , verdict, , reason]) => {
    const name = typeof node === "number" ? metric.nodes[node]!.name : node;
    return verdict == null ? [] : [`${name} → ${verdict}${reason ? `: ${reason}` : ""}`];
  });
  return lines.join("\n");
}

/** How bad a result is, as the command line orders cases: failed by score, no score, then the lowest. */
function badness(columns: Columns, row: number): number {
  return Math.min(2, ORDER[columns.state(row)]) * 2 + (columns.packed.score[row] ?? 0);
}

function sum(rows: [number, number][], kept: Bits): number {
  return rows.reduce((total, [row, count]) => total + (kept.has(row) ? count : 0), 0);
}

function ranked(names: string[]): number[] {
  const collator = new Intl.Collator("en", { numeric: true });
  const order = names.map((_, i) => i).sort((a, b) => collator.compare(names[a]!, names[b]!));
  const ranks: number[] = [];
  order.forEach((place, rank) => {
    const before = order[rank - 1];
    ranks[place] = before !== undefined && names[before] === names[place] ? ranks[before]! : rank;
  });
  return ranks;
}

/** The text that tells a case apart at a glance: its input, or the first of its texts. */
function firstText(value: unknown): string | null {
  if (typeof value === "string") return value;
  if (typeof value !== "object" || value === null) return null;
  const fields = Object.entries(value).filter(([name]) => !UNTOLD.includes(name));
  const input = fields.find(([name]) => name === "input") ?? fields.find(([name]) => name === "scenario");
  for (const [, part] of input ? [input] : fields) {
    const found = firstText(part);
    if (found !== null) return found;
  }
  return null;
}

function cut(text: string): string {
  return text.length > PREVIEW ? `${text.slice(0, PREVIEW - 1)}…` : text;
}

