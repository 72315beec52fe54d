// What is shown of the texts of a row.

import { contestOf } from "./contest.ts";
import type { Kind, PackedRow, PackedStep } from "./packed.ts";
import type { Metric, Row, Step } from "./source.ts";

const PREVIEW = 240; // characters of a text in a table
const UNTOLD = ["name", "tags", "comments", "type", "role"]; // fields that say nothing of what is judged

/** What a table shows of the texts of a case. */
export function preview(metric: Metric, number: number, kind: Kind, packed: PackedRow | null): Pick<Row, "why" | "first" | "output" | "tags"> {
  if (!packed) return { why: null, first: null, output: null, tags: [] };
  const [fields, metrics] = packed;
  const [reason, failure, steps] = metrics[number]!;
  const [end] = kind.end;
  const step = steps.find(([node]) => node === end);
  const code = end != null && metric.nodes[end]!.kind === "code";
  const decided = code && step?.[2] != null ? "decided by code" : null;
  const why = failure?.message ?? contestOf(step?.[3])?.reason ?? step?.[4] ?? decided ?? reasonOf(metric, reason, steps);
  const rated = end != null && metric.nodes[end]!.kind === "rating" && typeof step?.[3] === "number" ? `rated ${Number(step[3].toPrecision(4))}${why ? ": " : ""}` : "";
  const first = firstText(fields);
  const output = fields?.["actual_output"];
  return {
    why: why == null ? rated || null : cut(rated + wrong(why)),
    first: first === null ? null : cut(first.trimStart().split("\n", 1)[0]!),
    output: typeof output === "string" ? cut(output) : null,
    tags: (fields?.["tags"] ?? []) as string[],
  };
}

/** What a reason says was wrong, where its first line only counts. */
function wrong(reason: string): string {
  return /^Not: (.*)$/m.exec(reason)?.[1] ?? reason;
}

/** The items that a reason lists as wrong. */
export function wrongItems(reason: string): string[] {
  return [...reason.matchAll(/^Not: (?:'([^']*)'|"([^"]*)")/gm)].map((item) => item[1] ?? item[2]!);
}

/** A step as it was packed. */
export function stepOf(metric: Metric, packed: PackedStep): Step {
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

/** The reason of a result; true where it says what the steps say. */
export function reasonOf(metric: Metric, reason: string | true | null, steps: PackedStep[]): string | null {
  return reason === true ? composed(metric, steps) : reason;
}

/** The reason of a metric that says what its steps said, as it was left out of the file. */
function composed(metric: Metric, steps: PackedStep[]): string {
  const lines = steps.flatMap(([node, , verdict, , reason]) => {
    const name = typeof node === "number" ? metric.nodes[node]!.name : node;
    return verdict == null ? [] : [`${name} → ${verdict}${reason ? `: ${reason}` : ""}`];
  });
  return lines.join("\n");
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

