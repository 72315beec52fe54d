// Blocks of texts: unpacked when they are first needed, searched as text.

import { text, unpacked } from "./packed.ts";

const KEPT = 64; // blocks whose lines stay in memory
const TOGETHER = 8; // blocks that are unpacked at a time
// What could match outside of texts in a line of JSON.
const STRUCTURAL = /["[\]{},:\d]|null|true|false/i;

export class Blocks {
  private readonly open = new Map<number, Promise<string[]>>();
  /** What a search goes over, as bytes: they take half of what strings do. */
  private readonly bytes: (Promise<Uint8Array> | undefined)[] = [];

  /** `starts` are the slots that the blocks begin at; `read` gives a block as base64 text. */
  constructor(
    private readonly starts: number[],
    private readonly read: (block: number) => string,
  ) {}

  /** What the line of a slot holds; null behind the last block. */
  async row<T>(slot: number): Promise<T | null> {
    if (!this.starts.length) return null;
    const block = this.block(slot);
    const line = (await this.lines(block))[slot - this.starts[block]!];
    return line === undefined ? null : (JSON.parse(line) as T);
  }

  private block(slot: number): number {
    let low = 0;
    let high = this.starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.starts[middle]! <= slot) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  private lines(block: number): Promise<string[]> {
    const known = this.open.get(block);
    this.open.delete(block);
    const lines = known ?? (this.bytes[block] ?? unpacked(this.read(block))).then((bytes) => text(bytes).split("\n"));
    this.open.set(block, lines);
    if (this.open.size > KEPT) this.open.delete(this.open.keys().next().value!);
    return lines;
  }

  /** A block as it is searched; the next ones are unpacked meanwhile. */
  private searched(block: number): Promise<Uint8Array> {
    for (let next = block; next < Math.min(block + TOGETHER, this.starts.length); next++) {
      this.bytes[next] ??= unpacked(this.read(next));
    }
    return this.bytes[block]!;
  }

  /** Makes ready for a search, while its words are typed. */
  async prepare(): Promise<void> {
    for (let block = 0; block < this.starts.length; block++) await this.searched(block);
  }

  /** The slots whose texts hold `wanted`, whatever its case. */
  async search(wanted: string): Promise<number[]> {
    const needle = new RegExp(literal(JSON.stringify(wanted).slice(1, -1)), "gi");
    const inside = STRUCTURAL.test(wanted) ? new RegExp(literal(wanted), "i") : null;
    const found: number[] = [];
    for (let block = 0; block < this.starts.length; block++) {
      const whole = text(await this.searched(block));
      let line = 0;
      let start = 0;
      needle.lastIndex = 0;
      for (let hit = needle.exec(whole); hit; hit = needle.exec(whole)) {
        let end = whole.indexOf("\n", start);
        while (end >= 0 && end < hit.index) {
          line++;
          start = end + 1;
          end = whole.indexOf("\n", start);
        }
        const stop = end < 0 ? whole.length : end;
        if (!inside || holds(JSON.parse(whole.slice(start, stop)), inside)) found.push(this.starts[block]! + line);
        if (end < 0) break;
        needle.lastIndex = end + 1; // one hit in a line is enough
      }
    }
    return found;
  }
}

/** A text as a regular expression that finds just this text. */
function literal(wanted: string): string {
  return wanted.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}

function holds(value: unknown, wanted: RegExp): boolean {
  if (typeof value === "string") return wanted.test(value);
  if (typeof value !== "object" || value === null) return false;
  return Object.values(value).some((part) => holds(part, wanted));
}
