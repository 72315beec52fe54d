// Columns of all rows as typed arrays: a part of one is read when a row in it is first wanted.

import { text } from "./packed.ts";

export type Numbers = Uint32Array | Int32Array | Float32Array | Float64Array;
type Part = Uint8Array<ArrayBuffer>;

const ARRAYS: Record<string, typeof Uint32Array | typeof Float64Array | typeof Float32Array> = {
  number: Float64Array, group: Uint32Array, kind: Uint32Array, score: Float64Array,
};

/** Texts as bytes: how many, where each ends, and their UTF-8. */
class Texts {
  private readonly ends: Uint32Array;
  private readonly bytes: Uint8Array;

  constructor(part: Part) {
    const [count] = new Uint32Array(part.buffer, 0, 1);
    this.ends = new Uint32Array(part.buffer, 4, count!);
    this.bytes = part.subarray(4 + 4 * count!);
  }

  at(place: number): string {
    return text(this.bytes.subarray(this.ends[place - 1] ?? 0, this.ends[place]));
  }

  find(wanted: Uint8Array): number {
    return this.ends.findIndex((end, place) => {
      const start = this.ends[place - 1] ?? 0;
      return end - start === wanted.length && wanted.every((byte, at) => this.bytes[start + at] === byte);
    });
  }
}

export class Columns {
  private readonly arrays = new Map<string, Numbers>();
  private readonly read = new Map<string, Promise<unknown>>();

  /** `chunk` rows are in a part, which `part` reads by its number. */
  constructor(
    readonly rows: number,
    private readonly chunk: number,
    private readonly part: (column: string, part: number) => Promise<Part>,
  ) {}

  /** A column of numbers; only where some rows are, if they are named. */
  async numbers(name: string, rows?: number[]): Promise<Numbers> {
    const type = ARRAYS[name.split(".")[0]!] ?? Float32Array;
    const array = this.arrays.get(name) ?? new type(this.rows);
    this.arrays.set(name, array);
    const put = (part: Part, start: number) => array.set(new type(part.buffer).subarray(0, this.rows - start), start);
    await Promise.all(this.parts(rows).map((part) => this.once(name, part, (bytes) => put(bytes, part * this.chunk))));
    return array;
  }

  /** The texts of some rows, or of all. */
  async texts(name: string, rows: number[] = [...Array(this.rows).keys()]): Promise<string[]> {
    const parts = this.parts(rows);
    const texts = await Promise.all(parts.map((part) => this.once(name, part, (bytes) => new Texts(bytes))));
    const byPart = new Map(parts.map((part, place) => [part, texts[place]!]));
    return rows.map((row) => byPart.get(Math.floor(row / this.chunk))!.at(row % this.chunk));
  }

  /** The first row with a text; -1 without one. */
  async find(name: string, wanted: string): Promise<number> {
    const bytes = new TextEncoder().encode(wanted);
    for (const part of this.parts()) {
      const place = (await this.once(name, part, (read) => new Texts(read))).find(bytes);
      if (place >= 0) return part * this.chunk + place;
    }
    return -1;
  }

  private parts(rows?: number[]): number[] {
    if (rows) return [...new Set(rows.map((row) => Math.floor(row / this.chunk)))];
    return [...Array(Math.ceil(this.rows / this.chunk)).keys()];
  }

  private once<T>(name: string, part: number, made: (bytes: Part) => T): Promise<T> {
    const key = `${name} ${part}`;
    const read = this.read.get(key) ?? this.part(name, part).then(made);
    this.read.set(key, read);
    return read as Promise<T>;
  }
}
