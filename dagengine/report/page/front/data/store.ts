// Where the data of a page is: in its file, or on the server that reads a large run.

import { Blocks } from "./blocks.ts";
import { Columns } from "./columns.ts";
import { element, unpacked, type Head, type Index, type PackedRow } from "./packed.ts";
import { Server, type Prompt } from "./server.ts";
import type { Said } from "./source.ts";

export interface Store {
  readonly columns: Columns;
  /** What a server behind the page can do besides: other runs, labels; null without one. */
  readonly server: Server | null;
  /** Whether a search goes by words and their beginnings, and not by any part of a text. */
  readonly byWords: boolean;
  /** The texts of rows (null: not in reach), with what people said. */
  texts(rows: number[]): Promise<[PackedRow | null, Said[]][]>;
  fields(rows: number[]): Promise<PackedRow[0][]>;
  /** Makes ready for a search that is about to come. */
  prepare(): Promise<void>;
  /** The rows in whose texts, reasons or name something is. */
  search(text: string): Promise<Iterable<number>>;
  /** What was asked in a case, by metric and step; null where that is not in reach. */
  prompts(row: number, index: number): Promise<Prompt[][][] | null>;
}

export async function openStore(head: Head, index: Index): Promise<Store> {
  const server = head.server && new Server(head.server);
  if (server?.head.asks) return new Served(head, server);
  const slots = new Int32Array((await unpacked(element("column-slot"))).buffer);
  return new Filed(head, server, slots, index.said ?? {});
}

class Served implements Store {
  readonly byWords = true;
  readonly columns: Columns;

  constructor(head: Head, readonly server: Server) {
    this.columns = new Columns(head.run.cases, head.chunk, (column, part) => server.part(column, part));
  }

  texts(rows: number[]): Promise<[PackedRow, Said[]][]> {
    return this.server.texts(rows);
  }

  fields(rows: number[]): Promise<PackedRow[0][]> {
    return this.server.fields(rows);
  }

  async prepare(): Promise<void> {}

  search(text: string): Promise<Iterable<number>> {
    return this.server.search(text);
  }

  prompts(_: number, index: number): Promise<Prompt[][][] | null> {
    return this.server.prompts(index);
  }
}

class Filed implements Store {
  readonly byWords = false;
  readonly columns: Columns;
  private readonly blocks: Blocks;
  private readonly asked: Blocks;

  /** `slots` are the places of rows among the texts; -1 where those are not in the file. */
  constructor(head: Head, readonly server: Server | null, private readonly slots: Int32Array, private readonly said: Record<string, Said[]>) {
    this.columns = new Columns(head.run.cases, head.chunk, (column) => unpacked(element(`column-${column}`)));
    this.blocks = new Blocks(head.blocks ?? [], (block) => element(`texts-${block}`));
    this.asked = new Blocks(head.prompts ?? [], (block) => element(`prompts-${block}`));
  }

  async texts(rows: number[]): Promise<[PackedRow | null, Said[]][]> {
    return await Promise.all(rows.map(async (row): Promise<[PackedRow | null, Said[]]> => {
      const slot = this.slots[row]!;
      return [slot < 0 ? null : await this.blocks.row<PackedRow>(slot), this.said[row] ?? []];
    }));
  }

  async fields(rows: number[]): Promise<PackedRow[0][]> {
    return (await this.texts(rows)).map(([packed]) => packed && packed[0]);
  }

  prepare(): Promise<void> {
    return this.blocks.prepare();
  }

  async search(text: string): Promise<Iterable<number>> {
    const slots = new Set(await this.blocks.search(text));
    const needle = text.toLowerCase();
    const names = await this.columns.texts("name");
    return names.flatMap((name, row) => (slots.has(this.slots[row]!) || name.toLowerCase().includes(needle) ? [row] : []));
  }

  async prompts(row: number, index: number): Promise<Prompt[][][] | null> {
    if (this.server) return await this.server.prompts(index);
    const slot = this.slots[row]!;
    return slot < 0 ? null : await this.asked.row<Prompt[][][]>(slot);
  }
}
