// Blocks of texts: unpacked when they are first needed, searched as text.

import { unpack, type PackedRow } from "./packed.ts";

const KEPT = 24; // unpacked blocks that stay in memory
const TOGETHER = 8; // blocks that are unpacked at a time
// What could match outside of texts in a line of JSON.
const STRUCTURAL = /["[\]{},:\d]|null|true|false/;

export class Blocks {
  private readonly open = new Map<number, Promise<string[]>>();
  private readonly folded: (Promise<string> | undefined)[] = [];

  /** `starts` are the slots that the blocks begin at; `read` gives a block as base64 text. */
  constructor(
    private readonly starts: number[],
    private readonly read: (block: number) => string,
  ) {}

  /** The line of a slot. */
  async row(slot: number): Promise<PackedRow> {
    const block = this.block(slot);
    const lines = await this.lines(block);
    return JSON.parse(lines[slot - this.starts[block]!]!) as PackedRow;
  }

  /** What the line of a slot holds; null behind the last block. */
  async find<T>(slot: number): Promise<T | null> {
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
    const lines = known ?? unpack(this.read(block)).then((text) => text.split("\n"));
    this.open.set(block, lines);
    if (this.open.size > KEPT) this.open.delete(this.open.keys().next().value!);
    return lines;
  }

  /** A block as it is searched; the next ones are unpacked meanwhile. */
  private lowered(block: number): Promise<string> {
    for (let next = block; next < Math.min(block + TOGETHER, this.starts.length); next++) {
      this.folded[next] ??= unpack(this.read(next)).then((text) => text.toLowerCase());
    }
    return this.folded[block]!;
  }

  /** Makes ready for a search, while its words are typed. */
  async prepare(): Promise<void> {
    for (let block = 0; block < this.starts.length; block++) await this.lowered(block);
  }

  /** The slots whose texts hold `text`, whatever its case. */
  async search(text: string): Promise<number[]> {
    const needle = JSON.stringify(text.toLowerCase()).slice(1, -1);
    const doubtful = STRUCTURAL.test(text);
    const found: number[] = [];
    for (let block = 0; block < this.starts.length; block++) {
      const whole = await this.lowered(block);
      let line = 0;
      let start = 0;
      for (let at = whole.indexOf(needle); at >= 0; ) {
        let end = whole.indexOf("\n", start);
        while (end >= 0 && end < at) {
          line++;
          start = end + 1;
          end = whole.indexOf("\n", start);
        }
        const stop = end < 0 ? whole.length : end;
        if (!doubtful || holds(JSON.parse(whole.slice(start, stop)), text.toLowerCase())) {
          found.push(this.starts[block]! + line);
        }
        at = end < 0 ? -1 : whole.indexOf(needle, end + 1);
      }
    }
    return found;
  }
}

function holds(value: unknown, text: string): boolean {
  if (typeof value === "string") return value.includes(text);
  if (typeof value !== "object" || value === null) return false;
  return Object.values(value).some((part) => holds(part, text));
}
