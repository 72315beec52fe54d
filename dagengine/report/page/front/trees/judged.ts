// Items with verdicts: claims, pieces, replies. Lists, conversations and walks show the same ones.

import type { CaseMetric, Metric, Quote, Step } from "../data/source.ts";
import { plain } from "../parts/texts.tsx";
import { titleOf, traceOf } from "./spans.ts";

/** `fail` and `pass` are no and yes, `open` cannot tell; any other verdict is `plain`. */
export type Sign = "fail" | "open" | "pass" | "plain";
export const ITEM_SIGN: Record<Sign, string> = { fail: "✕", open: "?", pass: "✓", plain: "·" };

export interface Item {
  number: number;
  text: string | null;
  verdict: string;
  reason: string | null;
  sign: Sign;
  /** The turn that it is about; null for anything else. */
  turn: number | null;
  /** What was known before the turn, where the metric keeps account. */
  known: string[] | null;
  /** The words that its verdict stands on. */
  quotes: Quote[];
  /** The span of a trace that it is about; null for anything else. */
  span: string | null;
  /** The criterion of a rubric that it is about; null for anything else. */
  criterion: Criterion | null;
}

/** A criterion with its points; a gate has none. `won` is null for a gate, and where it does not count. */
export interface Criterion {
  criterion: string;
  name?: string;
  tags?: string[];
  gate?: boolean;
  points?: number;
  levels?: Record<string, number>;
  won?: number;
}

export interface JudgedStep {
  step: Step;
  items: Item[];
  /** The field that the items are of, where they are a field of the case themselves. */
  field: string | null;
}

type Fields = Record<string, unknown> | null;

/** What the metrics of the catalogue mean by their verdicts. */
const MEANS: Record<string, Record<string, string>> = {
  Faithfulness: { no: "contradicted", idk: "not mentioned", yes: "supported" },
  "Answer Relevancy": { no: "beside the point", idk: "related", yes: "relevant" },
  "Contextual Recall": { no: "not in the pieces", yes: "found" },
  "Contextual Precision": { no: "of no use", yes: "of use" },
  "Contextual Relevancy": { no: "beside the point", yes: "relevant" },
  "Knowledge Retention": { no: "forgets", yes: "keeps to it" },
  "Role Adherence": { no: "out of role", yes: "in role" },
  "Conversation Relevancy": { no: "beside the point", yes: "relevant" },
  "Turn Relevancy": { no: "beside the point", yes: "relevant" },
  "Conversation Completeness": { no: "not met", yes: "met" },
};

/** A verdict in the words of its metric; as it was given where the metric has no words for it. */
export function means(metric: Metric, verdict: string): string {
  return MEANS[metric.name]?.[verdict] ?? verdict;
}

/** Every step of a result that judged items. */
export function judgedSteps(metric: Metric, result: CaseMetric, fields: Fields): JudgedStep[] {
  return result.steps.flatMap((step) => {
    const found = step.verdict === null ? judgements(step.output) : null;
    if (!found) return [];
    const { names, field } = texts(metric, result, step, found.length, fields);
    const turns = turnsOf(fields);
    const trace = step.spans.length === found.length ? traceOf(fields) : null;
    const items = found.map((one, i): Item => ({
      number: i + 1,
      criterion: criterionOf(one.judgement),
      text: criterionOf(one.judgement)?.criterion ?? titleOf(trace, step.spans[i]) ?? names?.[i] ?? null,
      span: trace ? step.spans[i]! : null,
      verdict: plain(one.judgement.verdict),
      reason: one.judgement.reason ?? null,
      sign: criterionOf(one.judgement) ? signOfCriterion(one.judgement as Judgement & Criterion) : signOf(one.judgement.verdict),
      turn: turns && turnOf(turns, one.place, names?.[i] ?? null, i, found.length),
      known: one.known,
      quotes: step.quotes.filter(({ item }) => item === i + 1),
    }));
    return [{ step, items, field }];
  });
}

function criterionOf(judgement: Judgement): Criterion | null {
  return "criterion" in judgement ? (judgement as Judgement & Criterion) : null;
}

/** The points that another verdict would have brought more; all of them for a gate that is closed. */
export function lost({ criterion, sign }: Item): number {
  if (!criterion || criterion.won === undefined) return sign === "fail" ? Infinity : 0;
  return best(criterion) - criterion.won;
}

function best({ points = 0, levels }: Criterion): number {
  return Math.max(...(levels ? Object.values(levels).map((share) => share * points) : [points, 0]));
}

function signOfCriterion(judgement: Judgement & Criterion): Sign {
  const { gate, points = 1, won, verdict } = judgement;
  if (verdict === "cannot tell") return "open";
  if (gate) return (verdict === "met") === points > 0 ? "pass" : "fail";
  return won !== undefined && won < best(judgement) ? "fail" : "pass";
}

/** All criteria of a rubric as one list, the gates among them; null for any other metric. */
export function rubricOf(steps: JudgedStep[]): Item[] | null {
  const items = steps.flatMap((step) => step.items.filter(({ criterion }) => criterion));
  return items.length ? items.map((item, i) => ({ ...item, number: i + 1 })) : null;
}

/** The step whose items say most: the one with most that failed, else the last. */
export function mainStep(steps: JudgedStep[]): JudgedStep | null {
  const failed = ({ items }: JudgedStep) => items.filter(({ sign }) => sign === "fail").length;
  return steps.reduce<JudgedStep | null>((best, one) => (!best || failed(one) >= failed(best) ? one : best), null);
}

interface Judgement {
  verdict: unknown;
  reason?: string | null;
}

/** Judgements in an output, in a list or each beside the place of its reply; null for any other. */
function judgements(output: unknown): { judgement: Judgement; place: number | null; known: string[] | null }[] | null {
  if (!Array.isArray(output) || !output.length) return null;
  const found = output.map((item: { judgement?: Judgement; verdict?: unknown; place?: number; known?: string[] } | null) => {
    const judgement = item && typeof item === "object" ? (item.judgement ?? ("verdict" in item ? (item as Judgement) : null)) : null;
    return judgement && { judgement, place: item!.place ?? null, known: item!.known ?? null };
  });
  return found.every((one) => one !== null) ? found : null;
}

function signOf(verdict: unknown): Sign {
  const word = plain(verdict).toLowerCase();
  return word === "no" || word === "false" ? "fail" : word === "yes" || word === "true" ? "pass" : word === "idk" ? "open" : "plain";
}

/** What the items say: the list of as many that a step before handed on, or a field of the case. */
function texts(metric: Metric, result: CaseMetric, step: Step, count: number, fields: Fields): { names: string[] | null; field: string | null } {
  const { inputs, reads }: { inputs: string[]; reads: string[] } = step.node === null ? { inputs: [], reads: [] } : metric.nodes[step.node]!;
  const list = result.steps.find((one) => inputs.includes(one.name) && listOf(one.output)?.length === count);
  if (list) return { names: listOf(list.output)!.map(itemText), field: null };
  const field = reads.find((name) => name !== "turns" && Array.isArray(fields?.[name]) && (fields[name] as unknown[]).length === count) ?? null;
  return { names: field === null ? null : (fields![field] as unknown[]).map(itemText), field };
}

/** A list that a step handed on, as it is or as its only part. */
export function listOf(output: unknown): unknown[] | null {
  if (Array.isArray(output)) return output;
  const parts = output && typeof output === "object" ? Object.values(output) : [];
  return parts.length === 1 && Array.isArray(parts[0]) ? parts[0] : null;
}

export function itemText(item: unknown): string {
  const text = item && typeof item === "object" ? (item as { text?: unknown }).text : null;
  return typeof text === "string" ? text : plain(item);
}

export interface Turn {
  role: string;
  content: string;
}

/** The turns of a conversation; null for any other case. */
export function turnsOf(fields: Fields): Turn[] | null {
  const turns = fields?.turns;
  return Array.isArray(turns) && turns.length && turns.every((turn) => turn && typeof turn.role === "string") ? (turns as Turn[]) : null;
}

/** The turn that an item is about: by its place, by its name (`assistant turn 2`), or as one of all replies. */
function turnOf(turns: Turn[], place: number | null, name: string | null, at: number, of: number): number | null {
  if (place !== null) return place;
  const [, role, count] = /^(\w+) turn (\d+)$/.exec(name ?? "") ?? [];
  if (role) return nth(turns, role, Number(count));
  const replies = turns.filter((turn) => turn.role === "assistant").length;
  return name === null && replies === of ? nth(turns, "assistant", at + 1) : null;
}

function nth(turns: Turn[], role: string, count: number): number | null {
  let left = count;
  const place = turns.findIndex((turn) => turn.role === role && --left === 0);
  return place < 0 ? null : place;
}
