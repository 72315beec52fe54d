// How figures and states are written.

import { interval } from "../data/statistics.ts";
import type { Draft, State } from "../data/source.ts";

export const SIGN: Record<State, string> = { fail: "✕", none: "⊘", pass: "✓", plain: "·" };
export const STATE: Record<State, string> = {
  fail: "failed", none: "no score", pass: "passed", plain: "scored",
};

/** A state as results of runs call it, here. */
export function stateOf(state: string): State {
  const states: Record<string, State> = { passed: "pass", failed: "fail", no_score: "none" };
  return states[state] ?? "plain";
}

/** What a search of a large run finds. */
export const BY_WORDS = "In a run of this size a search finds whole words and beginnings of words";

const WHOLE = new Intl.NumberFormat("en-US"); // made once: a picture has hundreds of counts

/** 1,234 */
export function whole(count: number): string {
  return WHOLE.format(count);
}

/** `1 case`, `2 cases` */
export function many(count: number, thing: string, things = `${thing}s`): string {
  return `${whole(count)} ${count === 1 ? thing : things}`;
}

export function score(value: number): string {
  return value.toFixed(2);
}

/** A share in percent: without decimals below 1,000 cases. */
export function percent(hits: number, of: number): string {
  return `${((100 * hits) / of).toFixed(of < 1000 ? 0 : 1)} %`;
}

/** `(38 to 66)`: the 95 % interval of a share in percent. */
export function range(hits: number, of: number): string {
  const [low, high] = interval(hits, of).map((end) => (100 * end).toFixed(of < 1000 ? 0 : 1));
  return `(${low} to ${high})`;
}

/** US dollars with two significant digits. */
export function money(cost: number | null): string {
  if (cost == null) return "no price known";
  if (cost === 0) return "$0";
  if (cost >= 100) return `$${whole(Math.round(cost))}`;
  const digits = Math.max(0, 1 - Math.floor(Math.log10(cost)));
  return `$${cost.toFixed(Math.min(digits, 12))}`;
}

/** `18 s`, `6 min 20 s`, `2 h 5 min` */
export function time(seconds: number): string {
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  const rest = Math.round(seconds);
  if (rest < 60) return `${rest} s`;
  if (rest < 3600) return `${Math.floor(rest / 60)} min${rest % 60 ? ` ${rest % 60} s` : ""}`;
  return `${Math.floor(rest / 3600)} h ${Math.floor((rest % 3600) / 60)} min`;
}

/** What one case or node took: `35 ms`, then as `time`. */
export function took(seconds: number): string {
  return seconds < 1 ? `${Math.round(1000 * seconds)} ms` : time(seconds);
}

/** A probability, `0.83`; one of certainty is not rounded to it. */
export function probability(value: number): string {
  return value > 0.995 && value < 1 ? "> 0.99" : value < 0.005 && value > 0 ? "< 0.01" : value.toFixed(2);
}

/** `21 Nov 2026, 22:26` as the run's own clock had it. */
export function moment(text: string): string {
  const found = /^(\d{4})-(\d\d)-(\d\d)[T ](\d\d:\d\d)/.exec(text);
  if (!found) return text;
  const months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  return `${Number(found[3])} ${months[Number(found[2]) - 1]} ${found[1]}, ${found[4]}`;
}

/** The text of a draft, or that there is none. */
export function titled(draft: Draft): string {
  return draft.text || `draft ${whole(draft.case + 1)}, not written`;
}

/** Words joined as `a, b and c`. */
export function listed(words: string[]): string {
  return words.length < 2 ? (words[0] ?? "") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
