// What the screens talk to: filters, counts, orders and rows, from the columns and texts of a run.

import type { Numbers } from "./columns.ts";
import { answerKey, answerName, ended, endName } from "./names.ts";
import { element, text, unpacked, type Head, type Index, type Kind, type PackedRow } from "./packed.ts";
import type { Prompt, Server } from "./server.ts";
import { scoresOf } from "./statistics.ts";
import { openStore, type Store } from "./store.ts";
import { preview, reasonOf, stepOf, wrongItems } from "./texts.ts";
import type {
  Case, CaseMetric, Chosen, Counts, DayGroup, End, Filter, Many, Metric, Order, Part, Row, Run, State, Window,
} from "./source.ts";

const STATES: Record<string, State> = { f: "fail", n: "none", p: "pass", "-": "plain" };
const ORDER = { fail: 0, none: 1, pass: 2, plain: 3 };
const SHOWN = 9; // ends whose reasons are read
const ALIKE = 100; // cases of an end whose reasons are compared
const AT_ONCE = 1000; // cases whose fields are read together
const KEPT = 4; // filters whose rows are kept
const [PASSED, MISSING, FAILED] = [0, 1, 2]; // of a case, over all metrics

/** An end with the row of its first case, whose reason is told, and the rows of one below the threshold. */
type FirstEnd = End & { first: number; rows: number[] };

/** The results of one metric: of every row its kind and its score (NaN: none). */
interface Results {
  metric: Metric;
  kinds: Kind[];
  states: State[];
  of: Numbers;
  score: Numbers;
}

type Test = (row: number) => boolean;

/** Cases of a data set that is saved. */
export const MOST_LINES = 100_000;

export class Source {
  private readonly counted = new Map<string, Promise<Counts>>();
  /** Rows by filter, and by search: 1 for each that fits. */
  private readonly fits = new Map<string, Promise<Uint8Array>>();
  private readonly found = new Map<string, Promise<Uint8Array>>();
  private readonly results = new Map<number, Promise<Results>>();
  private states: Promise<Uint8Array> | null = null;
  /** Every row of the run, by metric and order: a filter only takes some out. */
  private readonly sorted = new Map<string, Promise<Int32Array>>();

  private constructor(
    readonly run: Run,
    private readonly index: Index,
    private readonly store: Store,
  ) {}

  /** Reads the parts of the page. Raises an error for a file that is not whole. */
  static async open(): Promise<Source> {
    const head = JSON.parse(element("head")) as Head;
    const index = JSON.parse(text(await unpacked(element("index")))) as Index;
    return new Source(head.run, index, await openStore(head, index));
  }

  get server(): Server | null {
    return this.store.server;
  }

  get byWords(): boolean {
    return this.store.byWords;
  }

  private of(metric: number): Promise<Results> {
    return kept(this.results, metric, Infinity, async () => {
      const names = [`kind.${metric}`, `score.${metric}`];
      const [of, score] = await Promise.all(names.map((name) => this.store.columns.numbers(name)));
      const kinds = this.index.kinds[metric]!;
      const states = kinds.map(({ state }) => STATES[state]!);
      return { metric: this.run.metrics[metric]!, kinds, states, of: of!, score: score! };
    });
  }

  private all(): Promise<Results[]> {
    return Promise.all(this.run.metrics.map((_, metric) => this.of(metric)));
  }

  // Filters.

  private matching(filter: Filter): Promise<Uint8Array> {
    return kept(this.fits, keyOf(filter), KEPT, async () => {
      const fits = new Uint8Array(this.run.cases).fill(1);
      for (const part of filter.parts) {
        const test = await this.test(filter.metric, part);
        if (test) keep(fits, (row) => test(row) !== part.not);
      }
      if (filter.text) {
        const found = await this.search(filter.text);
        keep(fits, (row) => found[row] === 1);
      }
      return fits;
    });
  }

  /** Whether a row has what a condition names; null when the run does not have it. */
  private async test(metric: number, { kind, key }: Part): Promise<Test | null> {
    const results = await this.of(metric);
    if (kind === "set") return await this.together(key);
    if (kind === "b") return (row) => bin(results.score[row]!) === Math.round(Number(key) * 10);
    if (kind === "day" || kind === "stratum") {
      const has = this.index.groups.map((group) => group[kind === "day" ? 0 : 1] === key);
      const of = await this.store.columns.numbers("group");
      return has.includes(true) ? (row) => has[of[row]!]! : null;
    }
    if (kind === "end") {
      const ends = results.kinds.map((way, i) => isEnd(results.states[i]!) && endName(results.metric, way, results.states[i]!) === key);
      return ends.includes(true) ? ofKind(results, (_, i) => ends[i]!) : null;
    }
    const { answers, nodes } = results.metric;
    const number = kind === "n" ? nodes.findIndex(({ name }) => name === key) : answers.findIndex((_, i) => answerKey(results.metric, i) === key);
    if (number < 0) return null;
    return ofKind(results, (way) => (kind === "n" ? way.nodes.includes(number) : answersOf(way).has(number)));
  }

  /** Whether just these metrics failed. */
  private async together(key: string): Promise<Test | null> {
    const names = new Set(key.split(" + "));
    const tests = (await this.all()).map((results) => {
      const wanted = names.delete(results.metric.name);
      return ofKind(results, (_, i) => (results.states[i] === "fail") === wanted);
    });
    return names.size ? null : (row) => tests.every((test) => test(row));
  }

  private search(wanted: string): Promise<Uint8Array> {
    return kept(this.found, wanted, KEPT, async () => {
      const rows = new Uint8Array(this.run.cases);
      for (const row of await this.store.search(wanted)) rows[row] = 1;
      return rows;
    });
  }

  /** Makes ready for a search that is about to come. */
  prepare(): Promise<void> {
    return this.store.prepare();
  }

  /** The state of every case over all metrics: some failed, else some have no score, else all passed. */
  private whole(): Promise<Uint8Array> {
    this.states ??= this.all().then((metrics) => {
      const states = new Uint8Array(this.run.cases).fill(PASSED!);
      for (const results of metrics) {
        const bad = results.states.map((state) => (state === "fail" ? FAILED! : state === "none" ? MISSING! : PASSED!));
        for (let row = 0; row < states.length; row++) states[row] = Math.max(states[row]!, bad[results.of[row]!]!);
      }
      return states;
    });
    return this.states;
  }

  // Counts.

  counts(filter: Filter): Promise<Counts> {
    return kept(this.counted, keyOf(filter), KEPT, () => this.count(filter));
  }

  private async count(filter: Filter): Promise<Counts> {
    const [fits, results] = await Promise.all([this.matching(filter), this.of(filter.metric)]);
    const { metric, kinds, states, of, score } = results;
    const bins = Array.from({ length: 11 }, () => ({ passed: 0, failed: 0 }));
    for (let row = 0; row < fits.length; row++) {
      if (!fits[row] || !(score[row]! === score[row]!)) continue;
      bins[bin(score[row]!)]![states[of[row]!] === "fail" ? "failed" : "passed"]++;
    }
    const answers = metric.answers.map(() => ({ cases: 0, failed: 0, none: 0, split: 0, items: 0 }));
    const nodes = metric.nodes.map(() => ({ cases: 0, failed: 0, none: 0, broken: {} as Record<string, number> }));
    const total = { cases: 0, failed: 0, none: 0, passed: 0, plain: 0, unsure: 0 };
    tally(results, fits).cases.forEach((cases, i) => {
      if (!cases) return;
      const [kind, state] = [kinds[i]!, states[i]!];
      const add = (count: { cases: number; failed: number; none: number }) => {
        count.cases += cases;
        if (state === "fail") count.failed += cases;
        if (state === "none") count.none += cases;
      };
      add(total);
      if (state === "pass") total.passed += cases;
      if (state === "plain") total.plain += cases;
      if (kind.split.length) total.unsure += cases;
      for (const answer of answersOf(kind)) add(answers[answer]!);
      for (const answer of new Set(kind.split)) answers[answer]!.split += cases;
      for (const [answer, count] of kind.items) answers[answer]!.items += count * cases;
      for (const node of kind.nodes) add(nodes[node]!);
      if (state !== "none" || kind.failure?.[1] == null) return;
      const { broken } = nodes[kind.failure[1]]!;
      broken[kind.failure[0]] = (broken[kind.failure[0]] ?? 0) + cases;
    });
    return { ...total, bins, answers, nodes, scores: scoresOf(scores(results, fits)) };
  }

  /** Where cases failed or broke off, the most first; without reasons, which take time. */
  async ends(filter: Filter): Promise<End[]> {
    const [fits, results] = await Promise.all([this.matching(filter), this.of(filter.metric)]);
    const { metric, kinds, states } = results;
    const { cases, first } = tally(results, fits);
    const ends = new Map<string, FirstEnd>();
    kinds.forEach((kind, i) => {
      const state = states[i]!;
      if (!cases[i] || !isEnd(state)) return;
      const key = endName(metric, kind, state);
      const [node, answer] = kind.end;
      const end = ends.get(key) ?? { key, label: key, state, node, answer, cases: 0, why: "", first: first[i]!, rows: [] };
      ends.set(key, { ...end, cases: end.cases + cases[i]!, first: Math.min(end.first, first[i]!) });
    });
    fits.forEach((fit, row) => {
      const at = results.of[row]!;
      const end = fit && states[at] === "fail" && kinds[at]!.end[1] == null && ends.get(endName(metric, kinds[at]!, "fail"));
      if (end && end.rows.length < ALIKE) end.rows.push(row);
    });
    return [...ends.values()].sort((a, b) => b.cases - a.cases || ORDER[a.state] - ORDER[b.state] || a.first - b.first);
  }

  /** Reads the reasons of the first ends: what several of their cases lack, else those of their first cases. */
  async whys(ends: End[], metric: number): Promise<End[]> {
    const told = ends.slice(0, SHOWN) as FirstEnd[];
    const [results, texts] = await Promise.all([this.of(metric), this.store.texts(told.map(({ first }) => first))]);
    const kindOf = (row: number) => results.kinds[results.of[row]!]!;
    const whys = await Promise.all(told.map(async (end, i) => ({ ...end, why: (await this.lacking(end, metric)) || (preview(results.metric, metric, kindOf(end.first), texts[i]![0]).why ?? "") })));
    return [...whys, ...ends.slice(SHOWN)];
  }

  /** The items that several cases of an end got wrong, the commonest first; "" where there are none. */
  private async lacking({ rows }: FirstEnd, metric: number): Promise<string> {
    const counts = new Map<string, number>();
    for (const [packed] of rows.length > 1 ? await this.store.texts(rows) : []) {
      const [reason, , steps] = packed?.[1][metric] ?? [null, null, []];
      const items = new Set(wrongItems(reasonOf(this.run.metrics[metric]!, reason, steps) ?? ""));
      for (const item of items) counts.set(item, (counts.get(item) ?? 0) + 1);
    }
    const common = [...counts].filter(([, cases]) => cases > 1).sort((a, b) => b[1] - a[1]).slice(0, 3);
    return common.map(([item, cases]) => `“${item}” in ${cases}${cases === rows.length ? "" : ` of ${rows.length}`} cases`).join(", ");
  }

  async days(filter: Filter): Promise<DayGroup[]> {
    const [fits, { states, of, score }] = await Promise.all([this.matching(filter), this.of(filter.metric)]);
    const groupOf = await this.store.columns.numbers("group");
    const groups = this.index.groups.map(([day, stratum, probability]) =>
      ({ day: day ?? "", stratum, probability, cases: 0, passed: 0, failed: 0, none: 0, scored: 0, sum: 0, squares: 0 }));
    for (let row = 0; row < fits.length; row++) {
      if (!fits[row]) continue;
      const group = groups[groupOf[row]!]!;
      const state = states[of[row]!];
      group.cases += 1;
      group.passed += Number(state === "pass");
      group.failed += Number(state === "fail");
      group.none += Number(state === "none");
      if (Number.isNaN(score[row])) continue;
      group.scored += 1;
      group.sum += score[row]!;
      group.squares += score[row]! ** 2;
    }
    return groups.filter(({ day, cases }) => day && cases);
  }

  async many(filter: Filter): Promise<Many> {
    const [fits, metrics, whole] = await Promise.all([this.matching(filter), this.all(), this.whole()]);
    const sets = new Map<string, number>();
    const states = [0, 0, 0];
    for (let row = 0; row < fits.length; row++) {
      if (!fits[row]) continue;
      states[whole[row]!]!++;
      if (whole[row] !== FAILED) continue;
      let key = "";
      metrics.forEach((results, i) => results.states[results.of[row]!] === "fail" && (key += key ? `,${i}` : i));
      sets.set(key, (sets.get(key) ?? 0) + 1);
    }
    return {
      strips: metrics.map((results) => {
        const { cases } = tally(results, fits);
        const count = (state: State) => cases.reduce((sum, n, i) => sum + (results.states[i] === state ? n : 0), 0);
        return { failed: count("fail"), none: count("none"), passed: count("pass"), mean: scoresOf(scores(results, fits))?.mean ?? null };
      }),
      together: [...sets]
        .map(([key, cases]) => ({ metrics: key.split(",").map(Number), cases }))
        .sort((a, b) => b.cases - a.cases),
      any: states[FAILED!]!,
      missing: states[MISSING!]!,
      passed: states[PASSED!]!,
    };
  }

  // Rows.

  private async order(filter: Filter, chosen: Chosen, order: Order): Promise<Int32Array> {
    const key = `${filter.metric} ${order.by} ${order.down}`;
    const sorted = kept(this.sorted, key, Infinity, async () => arranged(await this.keys(filter.metric, order.by), order.down));
    const [fits, test, rows] = await Promise.all([this.matching(filter), this.chosen(filter.metric, chosen), sorted]);
    return rows.filter((row) => fits[row] === 1 && test(row));
  }

  private async chosen(metric: number, chosen: Chosen): Promise<Test> {
    if (chosen === "all") return () => true;
    const results = await this.of(metric);
    if (chosen === "unsure") return ofKind(results, ({ split }) => split.length > 0);
    if (chosen === "fail" || chosen === "none" || chosen === "pass") return ofKind(results, (_, i) => results.states[i] === chosen);
    const [whole, wanted] = [await this.whole(), { any: FAILED, missing: MISSING, passed: PASSED }[chosen]];
    return (row) => whole[row] === wanted;
  }

  /** What every row is sorted by; what has no key, which is infinite, stays last either way. */
  private async keys(metric: number, by: string): Promise<Float64Array> {
    const results = await this.of(metric);
    const { kinds, states, of, score } = results;
    const keys = new Float64Array(this.run.cases);
    const fill = (key: (row: number) => number) => {
      for (let row = 0; row < keys.length; row++) keys[row] = key(row);
      return keys;
    };
    const ends = () => ranked(kinds.map((kind) => ended(results.metric, kind, "fail", null)));
    if (by === "data") return fill((row) => row);
    if (by === "state") return fill((row) => ORDER[states[of[row]!]!]);
    if (by === "split") return fill((row) => kinds[of[row]!]!.split.length);
    if (by === "case") return Float64Array.from(ranked(await this.store.columns.texts("name")));
    if (by === "end") {
      const ranks = ends();
      return fill((row) => ranks[of[row]!]!);
    }
    if (by === "worst") {
      const metrics = await this.all();
      return fill((row) => metrics.reduce((least, results) => Math.min(least, badness(results, row)), Infinity));
    }
    if (by === "default") {
      // State, then score, then end, in one number each.
      const ranks = ends();
      return fill((row) => ORDER[states[of[row]!]!] * 4e9 + Math.round(scoreOr(score[row]!, 2) * 1e9) + ranks[of[row]!]! / kinds.length);
    }
    const column = { tokens: "tokens", cost: "cost", time: "seconds", questions: "questions" }[by];
    const numbers = column ? await this.store.columns.numbers(`${column}.${metric}`) : await this.scoresBy(by, score);
    return fill((row) => scoreOr(numbers[row]!, Infinity));
  }

  private async scoresBy(by: string, score: Numbers): Promise<Numbers> {
    const metric = Number(/^score(\d+)$/.exec(by)?.[1] ?? NaN);
    return metric < this.run.metrics.length ? (await this.of(metric)).score : score;
  }

  async rows(filter: Filter, chosen: Chosen, order: Order, from: number, to: number): Promise<Window> {
    const rows = await this.order(filter, chosen, order);
    return { total: rows.length, rows: await Promise.all(Array.from(rows.slice(from, to), (row) => this.row(row, filter.metric))) };
  }

  /** A row without what is read from its texts; see `previews`. */
  private async row(row: number, front: number): Promise<Row> {
    const { columns } = this.store;
    const metrics = await this.all();
    // The metric that the row tells of: that in front, or of several the worst.
    const order = metrics.map((results) => badness(results, row));
    const about = metrics.length === 1 ? front : order.indexOf(Math.min(...order));
    const { metric, kinds, states, of, score } = metrics[about]!;
    const kind = kinds[of[row]!]!;
    const [name, index, ...used] = await Promise.all([
      columns.texts("name", [row]),
      this.number(row),
      ...["tokens", "questions", "cost", "seconds"].map((column) => columns.numbers(`${column}.${about}`, [row])),
    ]);
    const [tokens, questions, cost, seconds] = used.map((numbers) => number(numbers[row]!));
    return {
      index,
      name: name[0]!,
      scores: metrics.map((results) => scoreAt(results, row)),
      about,
      votes: kind.items,
      end: ended(metric, kind, states[of[row]!]!, known(score[row]!)),
      path: kind.answers.map((answer) => answerName(metric, answer)).join(", "),
      split: kind.split.length,
      questions: questions ?? 0,
      tokens: tokens ?? 0,
      cost: cost ?? null,
      seconds: seconds ?? null,
      said: [],
      tags: [],
      why: null,
      first: null,
      output: null,
    };
  }

  /** Reads what a table shows of the texts of rows. */
  async previews(rows: Row[]): Promise<Row[]> {
    const places = await Promise.all(rows.map(({ index }) => this.at(index)));
    const [metrics, texts] = await Promise.all([this.all(), this.store.texts(places)]);
    return rows.map((row, i) => {
      const [packed, said] = texts[i]!;
      const { metric, kinds, of } = metrics[row.about]!;
      return { ...row, said, ...preview(metric, row.about, kinds[of[places[i]!]!]!, packed) };
    });
  }

  private async number(row: number): Promise<number> {
    return this.index.placed ? row : (await this.store.columns.numbers("number"))[row]!;
  }

  private async at(index: number): Promise<number> {
    return this.index.placed ? index : (await this.store.columns.numbers("number")).indexOf(index);
  }

  /** The place of a case in an order, -1 when it is not among those chosen. */
  async place(filter: Filter, chosen: Chosen, order: Order, index: number): Promise<number> {
    return (await this.order(filter, chosen, order)).indexOf(await this.at(index));
  }

  /** The number of a case by its name or its number as text; null without one. */
  async find(name: string): Promise<number | null> {
    let row = await this.store.columns.find("name", name);
    if (row < 0 && /^\d+$/.test(name)) row = await this.at(Number(name));
    return row >= 0 && row < this.run.cases ? await this.number(row) : null;
  }

  async one(index: number): Promise<Case | null> {
    const row = await this.at(index);
    if (row < 0 || row >= this.run.cases) return null;
    const { columns } = this.store;
    const [metrics, [name], [hash], [[packed, said]]] = await Promise.all([
      this.all(), columns.texts("name", [row]), columns.texts("hash", [row]), this.store.texts([row]) as Promise<[[PackedRow | null, Row["said"]]]>,
    ]);
    return {
      index,
      name: name!,
      hash: hash || null,
      fields: packed?.[0] ?? null,
      metrics: metrics.map((results, i) => this.metric(results, row, packed?.[1][i])),
      said,
      seconds: packed?.[2] ?? null,
    };
  }

  /** What was asked in a case, by metric and step; null where that is not in reach. */
  async prompts(index: number): Promise<Prompt[][][] | null> {
    return this.run.noPrompts === null ? await this.store.prompts(await this.at(index), index) : null;
  }

  private metric(results: Results, row: number, texts: PackedRow[1][number] | undefined): CaseMetric {
    const { metric, kinds, of } = results;
    const kind = kinds[of[row]!]!;
    const score = scoreAt(results, row);
    const failure = texts?.[1] ?? null;
    return {
      ...score,
      end: ended(metric, kind, score.state, score.score),
      endNode: kind.failure ? kind.failure[1] : kind.end[0],
      reason: texts ? reasonOf(metric, texts[0], texts[2]) : null,
      failure: failure && { ...failure, raw: failure.raw ?? null },
      answers: kind.answers,
      steps: (texts?.[2] ?? []).map((step) => stepOf(metric, step)),
      odds: texts?.[3] ?? null,
    };
  }

  /** The cases chosen as lines of a data set; null where the texts are not in reach, or too many. */
  async lines(filter: Filter, chosen: Chosen): Promise<string | null> {
    const rows = await this.order(filter, chosen, { by: "data", down: false });
    if (rows.length > MOST_LINES) return null;
    const lines: string[] = [];
    for (let from = 0; from < rows.length; from += AT_ONCE) {
      const fields = await this.store.fields([...rows.slice(from, from + AT_ONCE)]);
      if (fields.includes(null)) return null;
      lines.push(...fields.map((case_) => `${JSON.stringify(case_)}\n`));
    }
    return lines.join("");
  }
}

/** What a map has under a key, made first if there is none; the oldest goes when there are more than `most`. */
function kept<K, V>(map: Map<K, V>, key: K, most: number, make: () => V): V {
  const value = map.get(key) ?? make();
  map.delete(key);
  map.set(key, value);
  if (map.size > most) map.delete(map.keys().next().value!);
  return value;
}

function keyOf({ metric, parts, text }: Filter): string {
  return JSON.stringify([metric, parts, text]);
}

function keep(fits: Uint8Array, test: Test): void {
  for (let row = 0; row < fits.length; row++) if (fits[row] && !test(row)) fits[row] = 0;
}

/** Whether a row is of a kind that passes a test, which is made once for every kind. */
function ofKind({ kinds, of }: Results, test: (kind: Kind, number: number) => boolean): Test {
  const fits = kinds.map(test);
  return (row) => fits[of[row]!]!;
}

/** How many rows are of every kind, and the first of them. */
function tally({ kinds, of }: Results, fits: Uint8Array): { cases: Uint32Array; first: Int32Array } {
  const [cases, first] = [new Uint32Array(kinds.length), new Int32Array(kinds.length)];
  for (let row = 0; row < fits.length; row++) {
    if (fits[row] && cases[of[row]!]!++ === 0) first[of[row]!] = row;
  }
  return { cases, first };
}

function isEnd(state: State): state is "fail" | "none" {
  return state === "fail" || state === "none";
}

/** The answers of a kind: those taken, and those of items. */
function answersOf({ answers, items }: Kind): Set<number> {
  return new Set([...answers, ...items.map(([answer]) => answer)]);
}

/** The scores of the rows that have one. */
function scores({ score }: Results, fits: Uint8Array): Float64Array {
  const values = new Float64Array(fits.length);
  let count = 0;
  for (let row = 0; row < fits.length; row++) if (fits[row] && score[row]! === score[row]!) values[count++] = score[row]!;
  return values.subarray(0, count);
}

/** The bin of a score: 0, 0.1 … 1, rounded to the nearest; code of a metric may give any number. */
function bin(score: number): number {
  return Math.min(10, Math.max(0, Math.round(score * 10)));
}

function scoreOr(score: number, without: number): number {
  return Number.isNaN(score) ? without : score;
}

function known(value: number): number | null {
  return Number.isNaN(value) ? null : value;
}

/** A number of a column with seven digits, as it was written; null for none. */
function number(value: number): number | null {
  return known(Number(value.toPrecision(7)));
}

function scoreAt({ kinds, states, of, score }: Results, row: number): Row["scores"][number] {
  const kind = of[row]!;
  return { state: states[kind]!, score: known(score[row]!), kind: kinds[kind]!.failure?.[0] ?? null };
}

/** How bad a result is, as the command line orders cases: failed by score, no score, then the lowest. */
function badness({ states, of, score }: Results, row: number): number {
  return Math.min(2, ORDER[states[of[row]!]!]) * 2 + scoreOr(score[row]!, 0);
}

/** Rows by their keys, infinite ones last; rows with equal keys stay in the order of the data. */
function arranged(keys: Float64Array, down: boolean): Int32Array {
  // Typed arrays sort fast without a comparison: the keys are ranked, and rows counted out by rank.
  const values = keys.slice().sort().filter((key, i, sorted) => key !== sorted[i - 1]);
  const last = values.at(-1) === Infinity ? values.length - 1 : values.length;
  const rankOf = (key: number) => {
    let [low, high] = [0, values.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle]! < key) low = middle + 1;
      else high = middle;
    }
    return down && low < last ? last - 1 - low : low;
  };
  const ranks = new Uint32Array(keys.length);
  const starts = new Uint32Array(values.length + 1);
  for (let row = 0; row < keys.length; row++) starts[(ranks[row] = rankOf(keys[row]!)) + 1]!++;
  for (let rank = 1; rank < starts.length; rank++) starts[rank]! += starts[rank - 1]!;
  const rows = new Int32Array(keys.length);
  for (let row = 0; row < rows.length; row++) rows[starts[ranks[row]!]!++] = row;
  return rows;
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
