// The form in which data lies in the page: columns by row, and compressed blocks of texts.
// `dagengine/report/page/packed_columns.py` and `packed_texts.py` beside it write it.

import type { Calls, Odds, Quote, Run, Said } from "./source.ts";

/** How a result went, but for its score: results that went alike share one. */
export interface Kind {
  /** Answers taken, nodes that ran. */
  answers: number[];
  nodes: number[];
  /** The node and the answer that it ended at. */
  end: [node: number | null, answer: number | null];
  /** The kind of failure, and its node, where there is no score. */
  failure: [kind: string, node: number | null, name: string] | null;
  /** f, n, p or -. */
  state: string;
  /** Answers whose votes were split. */
  split: number[];
  items: [answer: number, count: number][];
}

/** What tells of the numbers in the columns. */
export interface Index {
  /** Whether the number of every case is its place. */
  placed: boolean;
  groups: [day: string | null, stratum: string | null, probability: number][];
  /** By metric. */
  kinds: Kind[][];
  /** What people said, by row: only rows with some. */
  said?: Record<string, Said[]>;
}

/** What the head of the page says of its server. */
export interface ServerHead {
  run: number;
  who: string;
  /** Whether the page holds no data, and reads it from the server. */
  asks?: boolean;
}

/** What stands in the file uncompressed. */
export interface Head {
  format: number;
  run: Run;
  /** Rows of a part of a column. */
  chunk: number;
  /** Slots that each block of texts starts at; none where the server has the texts. */
  blocks?: number[];
  /** The same for blocks of prompts; slots from the end of the last on have none. */
  prompts?: number[];
  /** The server that handed the page out; null for a file. */
  server: ServerHead | null;
}

/** A step as it is packed; the end of a list of nulls is left out. */
export type PackedStep = [
  node: number | string, outcome: string, verdict?: string | null, output?: unknown,
  reason?: string | null, score?: number | null, mode?: string | null,
  confidence?: number | null, votes?: unknown[] | null, tokens?: number | null,
  kind?: string | null, cost?: number | null, seconds?: number | null, odds?: [string, number][] | null,
  calls?: Calls | null, cached?: number | null, quotes?: Quote[] | null,
  spans?: string[] | null,
];

export type PackedMetric = [
  /** True where it says what the steps say, one line each; see `composed`. */
  reason: string | true | null,
  failure: { kind: string; node: string; message: string; raw?: string } | null,
  steps: PackedStep[],
  odds?: Odds,
];

/** One line of a block. */
export type PackedRow = [fields: Record<string, unknown> | null, metrics: PackedMetric[], seconds?: number];

/** The bytes in base64 text that were compressed with gzip. */
export async function unpacked(base64: string): Promise<Uint8Array<ArrayBuffer>> {
  const stream = new DecompressionStream("gzip");
  const writer = stream.writable.getWriter();
  const written = Promise.all([writer.write(decoded(base64)), writer.close()]);
  // Chunk by chunk: a Blob and a Response around the stream take four times as long.
  const reader = stream.readable.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    chunks.push(part.value);
    size += part.value.length;
  }
  await written;
  const whole = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}

/** The bytes of base64 text; browsers that know how do it in a sixth of the time. */
function decoded(base64: string): Uint8Array<ArrayBuffer> {
  const bytes = Uint8Array as typeof Uint8Array & { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> };
  return bytes.fromBase64?.(base64) ?? Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

const UTF8 = new TextDecoder();

export function text(bytes: Uint8Array): string {
  return UTF8.decode(bytes);
}

/** The content of a data block of the page. */
export function element(id: string): string {
  const found = document.getElementById(id);
  if (!found) throw new Error(`this file is incomplete: the part ${id} is missing`);
  return found.textContent ?? "";
}
