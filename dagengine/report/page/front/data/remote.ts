// The source of a page without data: a server answers, from the index of a large run.

import { element, type Head } from "./packed.ts";
import { Server, type Prompt } from "./server.ts";
import type { Case, Chosen, Counts, DayGroup, End, Filter, Many, Order, Run, Source, Window } from "./source.ts";

export class Remote implements Source {
  readonly byWords = true;

  private constructor(
    readonly run: Run,
    readonly server: Server,
  ) {}

  /** The source that the head of the page names; null where the page holds its data. */
  static open(): Remote | null {
    const head = JSON.parse(element("head")) as Head;
    return head.server?.asks ? new Remote(head.run, new Server(head.server)) : null;
  }

  counts(filter: Filter): Promise<Counts> {
    return this.server.source("counts", { filter });
  }

  ends(filter: Filter): Promise<End[]> {
    return this.server.source("ends", { filter });
  }

  days(filter: Filter): Promise<DayGroup[]> {
    return this.server.source("days", { filter });
  }

  many(filter: Filter): Promise<Many> {
    return this.server.source("many", { filter });
  }

  rows(filter: Filter, chosen: Chosen, order: Order, from: number, to: number): Promise<Window> {
    return this.server.source("rows", { filter, chosen, order, start: from, stop: to });
  }

  place(filter: Filter, chosen: Chosen, order: Order, index: number): Promise<number> {
    return this.server.source("place", { filter, chosen, order, index });
  }

  one(index: number): Promise<Case | null> {
    return this.server.source("one", { index });
  }

  prompts(index: number): Promise<Prompt[][][] | null> {
    return this.server.prompts(index);
  }

  find(name: string): Promise<number | null> {
    return this.server.source("find", { name });
  }

  lines(filter: Filter, chosen: Chosen): Promise<string | null> {
    return this.server.source("lines", { filter, chosen });
  }
}
