// The cases of a filter: what may be chosen of them, and a window of rows, sorted by its heads, moved through by keys.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Chosen, Order, Row } from "../data/source.ts";
import { arenaOf } from "../data/contest.ts";
import { Columns, Footer } from "./controls.tsx";
import { isMany, useAnswer, useOrder, usePage, useWidth } from "./state.ts";
import { looks, Sign, tableOf } from "./columns.tsx";
import { useKeys } from "./keys.ts";
import { MOST_ROWS, useRows } from "./virtual.ts";
import { many, whole } from "./words.ts";

const PRINTED = 500;

interface Props {
  chosen: Chosen;
  order: Order;
  total: number;
  /** Numbers of the metrics that have a column. */
  shown: number[];
}

/** The case that the keys are at; it is found again when the table comes back. */
export const cursor: { index: number | null } = { index: null };

/** The cases chosen, below the chips that choose them and above what can be done with them. */
export function Listed({ chosen, shown, chips, titled = false, children }: Pick<Props, "chosen" | "shown"> & { chips: ComponentChildren; titled?: boolean; children?: ComponentChildren }) {
  const { source, filter, place } = usePage();
  const order = useOrder();
  const total = useAnswer(async () => (await source.rows(filter, chosen, order, 0, 0)).total, [source, filter, chosen]) ?? 0;
  return (
    <section class="tsec">
      {titled && <h2>The {many(total, "case")}</h2>}
      {chips}
      {"columns" in place.more && <Columns />}
      <Table chosen={chosen} order={order} total={total} shown={shown} />
      <Footer total={total} chosen={chosen} />
      {children}
    </section>
  );
}

function Table({ chosen, order, total, shown }: Props) {
  const page = usePage();
  const { source, filter, place, go } = page;
  const narrow = useWidth("(max-width: 640px)");
  const body = useRef<HTMLTableSectionElement>(null);
  const virtual = useRows(total, narrow ? 132 : 49, body);
  const items = virtual.getVirtualItems();
  const printing = usePrinting();
  const from = printing ? 0 : (items[0]?.index ?? 0);
  const to = printing ? Math.min(total, PRINTED) : (items.at(-1)?.index ?? -1) + 1;
  const window = useAnswer(
    async () => ({ from, ...(await source.rows(filter, chosen, order, from, to)) }),
    [source, filter, chosen, order.by, order.down, from, to],
  );
  // What is counted shows at once, texts as soon as they are unpacked.
  const told = useAnswer(
    async () => (window ? { window, rows: await source.previews(window.rows) } : null),
    [source, window],
  );
  const rows = (told?.window === window ? told?.rows : undefined) ?? window?.rows ?? [];
  const start = window?.from ?? 0;
  const extra = (place.more.columns ?? "").split(",");
  const columns = useMemo(() => looks(source.run, filter.metric, shown), [source, filter.metric, shown.join()]);
  const sort = ({ by, down }: Order) => go({ sort: by, down }, "replace");
  const table = tableOf(columns, rows, order, extra, sort);
  const heads = table.getHeaderGroups()[0]?.headers ?? [];
  const [at, setAt] = useCursor(page, chosen, order, total, virtual.scrollToIndex);
  const several = isMany(source);
  // Without a threshold an arena has nothing to sign: its winner is the state.
  const signed = several || !arenaOf(source.run.metrics[filter.metric]!) || source.run.metrics[filter.metric]!.threshold !== null;
  const [column, setColumn] = useColumn(shown, filter.metric);
  // Without a column of its own a key opens what the row tells of: of several metrics the worst.
  const open = (row: Row, metric = column ?? row.about) => {
    cursor.index = row.index;
    const named = several ? source.run.metrics[metric]!.name : "";
    go({ case: row.name, view: "case", more: { ...place.more, under: named } });
  };
  useTableKeys(rows, start, at, setAt, total, open);
  useKeys(several ? {
    ArrowLeft: (event) => inTable(event) && (event.preventDefault(), setColumn(-1)),
    ArrowRight: (event) => inTable(event) && (event.preventDefault(), setColumn(1)),
  } : {});
  const before = printing ? 0 : start * (items[0]?.size ?? 49);
  const after = printing ? 0 : Math.max(0, virtual.getTotalSize() - before - rows.length * (items[0]?.size ?? 49));
  return (
    <div class={`tablebox${shown.length > 3 ? " wide" : ""}`}>
      <table class={`cases${several ? " rag" : ""}`} aria-rowcount={total + 1} aria-label="Cases">
        <thead>
          <tr aria-rowindex={1}>
            {signed && <th class="state"><span class="vh">state</span></th>}
            {heads.map(({ column }) => {
              const look = columns.get(column.id)!;
              const sorted = column.getIsSorted();
              // Beside the answers the names of cases have less room.
              const width = { width: column.id === "case" && extra.includes("output") ? "20%" : look.width };
              return (
                <th key={column.id} class={look.number ? "num" : ""} style={width}
                  aria-sort={sorted ? (sorted === "desc" ? "descending" : "ascending") : undefined}>
                  {look.fixed ? look.title : (
                    <button onClick={column.getToggleSortingHandler()}>
                      {look.title}{sorted && (sorted === "desc" ? " ↓" : " ↑")}
                    </button>
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody ref={body}>
          {before > 0 && <Space height={before} columns={heads.length + 1} />}
          {table.getRowModel().rows.map((row, i) => {
            const here = start + i;
            return (
              <tr key={row.id} data-place={here} aria-rowindex={here + 2} class={here === at ? "cur" : ""}
                tabIndex={here === (at < start || at >= start + rows.length ? start : at) ? 0 : -1}
                onClick={() => open(row.original)} onFocus={() => setAt(here)}>
                {signed && <td class="state"><Sign row={row.original} metric={filter.metric} several={several} /></td>}
                {row.getVisibleCells().map((cell) => {
                  const look = columns.get(cell.column.id)!;
                  const metric = /^score(\d+)$/.exec(cell.column.id)?.[1];
                  const chosen = here === at && metric !== undefined && Number(metric) === column;
                  return (
                    <td key={cell.id} class={`${look.number ? "num " : ""}c-${cell.column.id.replace(/\d+$| .*/, "")}${chosen ? " here" : ""}`} data-n={look.title}
                      onClick={metric === undefined ? undefined : (event) => { event.stopPropagation(); open(row.original, Number(metric)); }}>
                      {look.cell(row.original)}{chosen && <span class="vh"> (Enter opens {look.title})</span>}
                    </td>
                  );
                })}
              </tr>
            );
          })}
          {after > 0 && <Space height={after} columns={heads.length + 1} />}
        </tbody>
      </table>
      {total > MOST_ROWS && <p class="soft sm">The first {whole(MOST_ROWS)} of {whole(total)} can be scrolled to; filter or search for the others.</p>}
      {printing && total > PRINTED && <p class="printed">{many(PRINTED, "case")} of {whole(total)} are printed.</p>}
    </div>
  );
}

/** The metric whose column the keys are at: none until arrows move. */
function useColumn(shown: number[], front: number): [number | null, (step: number) => void] {
  const [chosen, setChosen] = useState<number | null>(null);
  useLayoutEffect(() => setChosen(null), [front]);
  const move = (step: number) => {
    const at = chosen === null ? (step > 0 ? 0 : shown.length - 1) : shown.indexOf(chosen) + step;
    const next = shown[Math.max(0, Math.min(shown.length - 1, at))];
    if (next !== undefined) setChosen(next);
  };
  return [chosen, move];
}

function Space({ height, columns }: { height: number; columns: number }) {
  return <tr class="space" aria-hidden="true"><td colSpan={columns} style={{ height: `${height}px` }} /></tr>;
}

/** The place of the current row, and how to move it; the row comes into sight. */
function useCursor(
  { source, filter }: ReturnType<typeof usePage>, chosen: Chosen, order: Order, total: number,
  scroll: (place: number, options: { align: "auto" | "center" }) => void,
): [number, (place: number) => void] {
  const [at, setAt] = useState(-1);
  const asked = useRef(false);
  useLayoutEffect(() => {
    setAt(-1);
    if (cursor.index === null || asked.current || !total) return;
    asked.current = true;
    source.place(filter, chosen, order, cursor.index).then((place) => {
      if (place < 0) return;
      setAt(place);
      scroll(place, { align: "center" });
      focusRow(place);
    }, () => undefined);
  }, [filter, chosen, order.by, order.down, total > 0]);
  return [at, setAt];
}

/** Gives the focus to a row once it stands in the document. */
function focusRow(place: number, tries = 20): void {
  const row = document.querySelector<HTMLElement>(`tr[data-place="${place}"]`);
  if (row) row.focus({ preventScroll: true });
  else if (tries) requestAnimationFrame(() => focusRow(place, tries - 1));
}

function useTableKeys(rows: Row[], start: number, at: number, setAt: (place: number) => void, total: number, open: (row: Row) => void): void {
  const move = (place: number) => {
    const next = Math.max(0, Math.min(total - 1, place));
    setAt(next);
    const row = document.querySelector<HTMLElement>(`tr[data-place="${next}"]`);
    if (row) row.focus();
    else scrollTo({ top: scrollY + (next - at) * 49 });
    focusRow(next);
  };
  useKeys({
    j: () => move(at + 1),
    k: () => move(at - 1),
    ArrowDown: (event) => inTable(event) && (event.preventDefault(), move(at + 1)),
    ArrowUp: (event) => inTable(event) && (event.preventDefault(), move(at - 1)),
    Enter: (event) => {
      const row = rows[at - start];
      if (row && (inTable(event) || document.activeElement === document.body)) open(row);
    },
  });
}

function inTable(event: KeyboardEvent): boolean {
  return event.target instanceof HTMLTableRowElement;
}

/** Whether the page is being printed: then all rows up to 500 stand in it. */
function usePrinting(): boolean {
  const [printing, setPrinting] = useState(false);
  useEffect(() => {
    const media = matchMedia("print");
    const changed = () => setPrinting(media.matches);
    const before = () => setPrinting(true);
    const after = () => setPrinting(false);
    media.addEventListener("change", changed);
    addEventListener("beforeprint", before);
    addEventListener("afterprint", after);
    return () => {
      media.removeEventListener("change", changed);
      removeEventListener("beforeprint", before);
      removeEventListener("afterprint", after);
    };
  }, []);
  return printing;
}
