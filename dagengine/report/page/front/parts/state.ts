// The state of the page: its address, and answers of the source to what the address asks.

import { createContext } from "preact";
import { useContext, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Source } from "../data/engine.ts";
import type { Chosen, Filter, Metric, Order, Part } from "../data/source.ts";
import { arenaOf } from "../data/contest.ts";
import { clicked, read, write, type Place } from "./address.ts";

export interface Page {
  source: Source;
  place: Place;
  /** The number of the metric in front. */
  metric: number;
  filter: Filter;
  /** Parts of the address that this run does not have. */
  unknown: string[];
  /** Shows another place. `type` replaces the entry of the history, as typing and moving do. */
  go: (change: Partial<Place>, how?: "push" | "replace") => void;
}

export const PageContext = createContext<Page | null>(null);

export function usePage(): Page {
  const page = useContext(PageContext);
  if (!page) throw new Error("no page around this part");
  return page;
}

export function useAddress(source: Source): Page {
  const [fragment, setFragment] = useState(location.hash);
  useEffect(() => {
    const moved = () => setFragment(location.hash);
    addEventListener("popstate", moved);
    addEventListener("hashchange", moved);
    return () => {
      removeEventListener("popstate", moved);
      removeEventListener("hashchange", moved);
    };
  }, []);
  return useMemo(() => {
    const place = read(fragment);
    const go: Page["go"] = (change, how = "push") => {
      const next = write({ ...read(location.hash), ...change });
      if (next === location.hash || (next === "#" && !location.hash)) return;
      if (how === "push") history.pushState(null, "", next);
      else history.replaceState(null, "", next);
      setFragment(location.hash);
    };
    return { source, place, go, ...known(source, place) };
  }, [source, fragment]);
}

/** The filter of a place, without what the run does not have. */
function known(source: Source, place: Place): Pick<Page, "metric" | "filter" | "unknown"> {
  const { metrics } = source.run;
  const named = metrics.findIndex((m) => m.name === place.metric);
  const metric = Math.max(0, named);
  const unknown = place.metric !== null && named < 0 ? [place.metric] : [];
  const parts = place.parts.filter((part) => {
    const there = has(metrics[metric], metrics, part);
    if (!there) unknown.push(part.key.replace(":", " → "));
    return there;
  });
  return { metric, filter: { metric, parts, text: place.text }, unknown };
}

function has(metric: Metric | undefined, metrics: Metric[], { kind, key }: Part): boolean {
  if (!metric) return false;
  if (kind === "e") return metric.answers.some((a) => `${metric.nodes[a.node]!.name}:${a.verdict}` === key);
  if (kind === "n") return metric.nodes.some((node) => node.name === key);
  if (kind === "b") return Number(key) >= 0 && Number(key) <= 1;
  if (kind === "set") return key.split(" + ").every((name) => metrics.some((m) => m.name === name));
  return true;
}

/** The answer to a question, the one before it while a new one is on its way. */
export function useAnswer<T>(ask: () => Promise<T>, on: unknown[]): T | null {
  const [answer, setAnswer] = useState<{ value: T } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const latest = useRef(0);
  useLayoutEffect(() => {
    const mine = ++latest.current;
    ask().then(
      (value) => mine === latest.current && setAnswer({ value }),
      (problem: unknown) => mine === latest.current && setError(problem),
    );
  }, on);
  if (error !== null) throw error;
  return answer && answer.value;
}

/** Filters by a part of the picture, as a click with or without Shift or Alt says. */
export function usePick(): (part: Part, event: { shiftKey: boolean; altKey: boolean }) => void {
  const { go, filter } = usePage();
  return (part, event) => go({ parts: clicked(filter.parts, part, event), view: "cases", case: null });
}

/** Whether there are several metrics: then the table has a column for each. */
export function isMany(source: Source): boolean {
  return source.run.metrics.length > 1;
}

/** The rows that the table shows: what failed, else what has no score, else all; of a filter all. */
export function useChosen(counts: { failed: number; none: number } | null): Chosen {
  const { place, source, filter } = usePage();
  if (place.state) return place.state;
  if (source.run.drafts) return "all";
  if (filter.parts.length || filter.text || !counts || arenaOf(source.run.metrics[filter.metric]!)) return "all";
  const [failed, none] = isMany(source) ? (["any", "missing"] as const) : (["fail", "none"] as const);
  return counts.failed ? failed : counts.none ? none : "all";
}

/** How many cases of the filter failed, and how many have no score, by their one state. */
export function useStates(): { failed: number; none: number } | null {
  const { source, filter } = usePage();
  return useAnswer<{ failed: number; none: number }>(async () => {
    if (!isMany(source)) return await source.counts(filter);
    const { any, missing } = await source.many(filter);
    return { failed: any, none: missing };
  }, [source, filter]);
}

export function useOrder(): Order {
  const { place, source, filter } = usePage();
  if (place.sort) return { by: place.sort, down: place.down };
  if (source.run.drafts) return { by: "data", down: false };
  if (isMany(source)) return { by: "worst", down: false };
  // What changed with the order first.
  return arenaOf(source.run.metrics[filter.metric]!) ? { by: "split", down: true } : { by: "default", down: false };
}

export function useWidth(query: string): boolean {
  const media = useMemo(() => matchMedia(query), [query]);
  const [fits, setFits] = useState(media.matches);
  useEffect(() => {
    const changed = () => setFits(media.matches);
    changed();
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, [media]);
  return fits;
}
