// What only a server behind the page can do: other runs, what changed, labels, the data of a large run.

import type { PackedRow, ServerHead } from "./packed.ts";
import type { Said } from "./source.ts";

/** A question as it was sent to the judge. */
export type Prompt = { role: string; content: string }[];

/** What passed under one metric, with the share and its 95 % interval; null where nothing can pass. */
export interface Rate {
  metric: string;
  hash: string | null;
  passed: number;
  of: number;
  no_score: number;
  share: [value: number, low: number, high: number] | null;
}

export interface History {
  runs: OtherRun[];
  /** Folders that cannot be read. */
  broken: { name: string; why: string }[];
}

export interface OtherRun {
  run: number;
  name: string;
  folder: string;
  started: string;
  seconds: number | null;
  finished: boolean;
  metrics: string[];
  rates: Rate[];
  data: string | null;
  /** The runs with a metric and a case in common. */
  comparable: number[];
  planned: number | null;
  cases: number;
  passed: number | null;
  failed: number | null;
  no_score: number | null;
  cost: number | null;
  judges: string[];
}

export type Cause = "definition" | "evidence" | "judge" | "same";
export const CAUSES: Cause[] = ["definition", "evidence", "judge", "same"];

export type Kind = "worse" | "better" | "lost" | "gained" | "score" | "path";

/** One metric on one case, where two runs do not agree; pairs are old and new. */
export interface Change {
  kind: Kind;
  case: string;
  index: [number, number];
  state: [string, string];
  score: [number | null, number | null];
  /** The first node whose answer differs; empty for the metric itself. */
  node: string;
  answer: [string, string];
  cause: Cause;
  detail: string;
  /** The line that tells the case apart; null without texts. */
  first?: string | null;
}

export interface TreeChange {
  kind: string;
  node: string;
  what: string;
  old: string | null;
  new: string | null;
  old_hash: string | null;
  new_hash: string | null;
}

export interface MetricChanges {
  metric: string;
  cases: number;
  headline: string; // these three in the words of the terminal
  result: string[];
  scores: string;
  flips: number;
  worse: number;
  better: number;
  lost: number;
  gained: number;
  other_score: number;
  other_path: number;
  same: number;
  causes: Record<Cause, number>;
  nodes: ({ node: string } & Record<Cause, number>)[];
  tree: TreeChange[];
  test: { chance: boolean } | null;
  noise: { words: string } | null;
  noise_missing: string;
  changes: Change[];
}

export interface RunChanges {
  old: { seconds: number | null; cost: number | null; finished: boolean; started: string };
  new: { seconds: number | null; cost: number | null; finished: boolean; started: string };
  agrees: boolean;
  cases: { common: number; renamed: number; changed: number; new: number; missing: number };
  new_cases: string[];
  missing_cases: string[];
  added_metrics: string[];
  removed_metrics: string[];
  metrics: MetricChanges[];
}

/** What one node said in one of two runs, as `results.jsonl` has it. */
export interface WalkStep {
  node: string;
  kind: string;
  outcome: string;
  output?: unknown;
  verdict?: unknown;
  reason?: string;
  score?: number;
  votes?: unknown[];
}

export interface WalkOf {
  case: string;
  score: number | null;
  outcome: string;
  failure: { kind: string; node: string; message: string } | null;
  steps: WalkStep[];
  fields: Record<string, unknown> | null;
  questions: Record<string, string | null>;
}

export interface Asked {
  node: string;
  kind: string;
  question: string;
  choices: string[];
  reads: string[];
  evidence: { node: string; output: unknown }[];
}

export interface Beside {
  node: string;
  you: string | null;
  judge: string | null;
  reason: string | null;
  same: boolean | null;
}

/** Where a person stands on a case. */
export interface Position {
  place: number;
  name: string;
  fields: Record<string, unknown> | null;
  steps: { node: string; answer: string; by: "person" | "code" }[];
  asked: Asked | null;
  answered: number;
  done: boolean;
  score: number | null;
  success: boolean | null;
  why: string;
  judge: {
    score: number | null;
    success: boolean | null;
    failure: string | null;
    nodes: Beside[];
  } | null;
}

interface Who {
  who: string;
  metric: string;
  place: number;
}

export class Server {
  constructor(readonly head: ServerHead) {}

  runs(): Promise<History> {
    return this.get("../../api/runs", {});
  }

  changes(old: number, now: number): Promise<RunChanges> {
    return this.get("../../api/changes", { old, new: now });
  }

  /** One case in both runs, by its number in each. */
  walks(old: number, now: number, metric: string, [old_index, new_index]: [number, number]): Promise<[WalkOf, WalkOf]> {
    return this.get("../../api/walks", { old, new: now, metric, old_index, new_index });
  }

  /** The places of the cases to label, in their order; of the kind `one` that with the number `seed`. */
  async queue(metric: string, kind: string, count: number, seed: string): Promise<number[]> {
    const found = await this.get<{ places: number[] }>("api/label/queue", { metric, kind, count, seed });
    return found.places;
  }

  position(at: Who): Promise<Position> {
    return this.get("api/label/position", { ...at });
  }

  answer(at: Who, node: string, choice: number, note: string): Promise<Position> {
    return this.post("api/label/answer", { ...at, node, choice, note: note || null });
  }

  undo(at: Who, node: string | null): Promise<Position> {
    return this.post("api/label/undo", { ...at, node });
  }

  /** A part of a column. */
  async part(column: string, part: number): Promise<Uint8Array<ArrayBuffer>> {
    return new Uint8Array(await this.bytes("api/column", { name: column, part }));
  }

  /** The rows in whose texts the words are, or words that begin so. */
  async search(text: string): Promise<Uint32Array> {
    return new Uint32Array(await this.bytes("api/search", { text }));
  }

  /** The texts of some rows, each with what people said. */
  texts(rows: number[]): Promise<[PackedRow, Said[]][]> {
    return this.post("api/texts", { places: rows });
  }

  fields(rows: number[]): Promise<(PackedRow[0])[]> {
    return this.post("api/fields", { places: rows });
  }

  /** What was asked in a case, by metric and step. */
  prompts(index: number): Promise<Prompt[][][] | null> {
    return this.get("api/prompts", { index });
  }

  /** How many rows the run has by now. */
  status(): Promise<{ rows: number; finished: boolean }> {
    return this.get("api/status", {});
  }

  private async get<T>(path: string, query: Record<string, string | number>): Promise<T> {
    return (await (await asked(fetch(addressed(path, query)))).json()) as T;
  }

  private async bytes(path: string, query: Record<string, string | number>): Promise<ArrayBuffer> {
    return await (await asked(fetch(addressed(path, query)))).arrayBuffer();
  }

  private async post<T>(path: string, body: unknown): Promise<T> {
    const request = { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
    return (await (await asked(fetch(path, request))).json()) as T;
  }
}

function addressed(path: string, query: Record<string, string | number>): string {
  return `${path}?${new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]))}`;
}

async function asked(request: Promise<Response>): Promise<Response> {
  const response = await request.catch(() => {
    throw new Error("dagengine view does not answer: start it again, and open the address that it prints");
  });
  if (response.ok) return response;
  const { error } = (await response.json()) as { error?: string };
  throw new Error(error ?? `the server answers ${response.status}`);
}
