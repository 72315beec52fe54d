// What the page shows, as the fragment of its address: a link shows what I see.

import type { Chosen, Part } from "../data/source.ts";

/** Everything that can be linked. Names, not numbers: a link survives another run of the tree. */
export interface Place {
  view: string;
  metric: string | null;
  parts: Part[];
  state: Chosen | null;
  text: string;
  sort: string | null;
  down: boolean;
  case: string | null;
  step: string | null;
  outline: boolean;
  /** What other screens keep in the address. */
  more: Record<string, string>;
}

const KINDS = ["e", "n", "end", "b", "set", "day", "stratum"] as const;
const STATES = ["fail", "none", "pass", "all", "unsure", "any", "missing", "passed"];
const OWN = ["m", "v", "state", "q", "sort", "case", "step", "as", "not"];

export function read(fragment: string): Place {
  const found = new URLSearchParams(fragment.replace(/^#/, "").replaceAll("+", "%2B"));
  const parts: Part[] = [];
  for (const [name, key] of found) {
    const not = name === "not" || name.startsWith("not-");
    const kind = name === "not" ? "e" : not ? name.slice(4) : name;
    if (isKind(kind)) parts.push({ kind, key, not });
  }
  const sort = found.get("sort");
  const state = found.get("state");
  const more: Record<string, string> = {};
  for (const [name, value] of found) {
    if (!OWN.includes(name) && !isKind(name.replace(/^not-/, ""))) more[name] = value;
  }
  return {
    view: found.get("v") ?? "cases",
    metric: found.get("m"),
    parts,
    state: state && STATES.includes(state) ? (state as Chosen) : null,
    text: found.get("q") ?? "",
    sort: sort?.replace(/^-/, "") ?? null,
    down: sort?.startsWith("-") ?? false,
    case: found.get("case"),
    step: found.get("step"),
    outline: found.get("as") === "outline",
    more,
  };
}

function isKind(name: string): name is Part["kind"] {
  return (KINDS as readonly string[]).includes(name);
}

/** The fragment of a place; what is as usual is left out. */
export function write(place: Place): string {
  const pairs: [string, string | null][] = [
    ["m", place.metric],
    ...place.parts.map(({ kind, key, not }): [string, string] => [
      not ? (kind === "e" ? "not" : `not-${kind}`) : kind,
      key,
    ]),
    ["state", place.state],
    ["q", place.text || null],
    ["sort", place.sort && (place.down ? `-${place.sort}` : place.sort)],
    ["case", place.case],
    ["step", place.step],
    ["as", place.outline ? "outline" : null],
    ...Object.entries(place.more),
    ["v", place.view === "cases" ? null : place.view],
  ];
  const written = pairs.filter(([, value]) => value !== null && value !== "");
  // Colons and blanks may stand in a fragment; what means something in one may not.
  const escaped = (text: string) => encodeURIComponent(text).replaceAll("%3A", ":");
  return `#${written.map(([name, value]) => `${name}=${escaped(value!)}`).join("&")}`;
}

function same(one: Part, other: Part): boolean {
  return one.kind === other.kind && one.key === other.key && one.not === other.not;
}

/** The parts after a click: this one alone, one more, or all but its cases. */
export function clicked(parts: Part[], part: Part, event: { shiftKey: boolean; altKey: boolean }): Part[] {
  if (event.altKey || event.shiftKey) {
    const wanted = { ...part, not: event.altKey };
    const rest = parts.filter((p) => !(p.kind === part.kind && p.key === part.key));
    return parts.some((p) => same(p, wanted)) ? rest : [...rest, wanted];
  }
  const only = parts.length === 1 && same(parts[0]!, part);
  return only ? [] : [part];
}
