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
    const written = JSON.stringify(wanted).slice(1, -1);
    const lines = /^[\x20-\x7e]+$/.test(written) ? linesByBytes(written) : linesByText(written);
    const inside = STRUCTURAL.test(wanted) ? new RegExp(literal(wanted), "i") : null;
    const found: number[] = [];
    for (let block = 0; block < this.starts.length; block++) {
      for (const [line, read] of lines(await this.searched(block))) {
        if (!inside || holds(JSON.parse(read()), inside)) found.push(this.starts[block]! + line);
      }
    }
    return found;
  }
}

/** The lines of a block that hold a text: their numbers, and what reads them. */
type Lines = (block: Uint8Array) => Iterable<[line: number, read: () => string]>;

/** Lines with letters of English: no byte of other letters is one of theirs, so nothing has to become text first. */
function linesByBytes(wanted: string): Lines {
  const fold = Uint8Array.from({ length: 256 }, (_, byte) => (byte >= 65 && byte <= 90 ? byte + 32 : byte));
  const needle = Uint8Array.from(wanted, (letter) => fold[letter.charCodeAt(0)]!);
  const last = needle.length - 1;
  // How far the end of the needle may move on from a byte (Horspool).
  const steps = new Uint32Array(256).fill(needle.length);
  for (let i = 0; i < last; i++) steps[needle[i]!] = last - i;
  const next = (block: Uint8Array, from: number): number => {
    for (let end = from + last; end < block.length; end += steps[fold[block[end]!]!]!) {
      let back = 0;
      while (back <= last && fold[block[end - back]!] === needle[last - back]) back++;
      if (back > last) return end - last;
    }
    return -1;
  };
  return function* (block) {
    let [line, start] = [0, 0];
    for (let hit = next(block, 0); hit >= 0; hit = next(block, start)) {
      for (let end = block.indexOf(10, start); end >= 0 && end < hit; end = block.indexOf(10, start)) {
        line++;
        start = end + 1;
      }
      const end = block.indexOf(10, hit);
      const [from, to] = [start, end < 0 ? block.length : end];
      yield [line, () => text(block.subarray(from, to))];
      if (end < 0) return;
      line++;
      start = end + 1; // one hit in a line is enough
    }
  };
}

function linesByText(wanted: string): Lines {
  const needle = new RegExp(literal(wanted), "i");
  return (block) => text(block).split("\n").flatMap((line, number): [number, () => string][] => (needle.test(line) ? [[number, () => line]] : []));
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
