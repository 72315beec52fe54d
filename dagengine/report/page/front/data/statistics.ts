// The few figures of a page, by the same formulas as the command line's.

import type { Scores } from "./source.ts";

/** Mean, median, spread and least of scores, which are put in order; null without scores. */
export function scoresOf(scores: Float64Array): Scores | null {
  const count = scores.length;
  if (!count) return null;
  const sorted = scores.sort();
  const mean = sorted.reduce((sum, score) => sum + score, 0) / count;
  const squares = sorted.reduce((sum, score) => sum + (score - mean) ** 2, 0);
  const middle = count >> 1;
  const median = count % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
  return { mean, median, spread: count > 1 ? Math.sqrt(squares / (count - 1)) : null, lowest: sorted[0]! };
}

/** Wilson's 95 % interval of a share: both ends between 0 and 1. */
export function interval(hits: number, of: number): [number, number] {
  const z = 1.959963984540054;
  const share = hits / of;
  const middle = share + (z * z) / (2 * of);
  const half = z * Math.sqrt((share * (1 - share)) / of + (z * z) / (4 * of * of));
  const whole = 1 + (z * z) / of;
  return [Math.max(0, (middle - half) / whole), Math.min(1, (middle + half) / whole)];
}

/** Values from 0 to 1 that were sampled with one probability: how many, their sum, and that of their squares. */
export interface Sampled {
  probability: number;
  count: number;
  sum: number;
  squares: number;
}

/**
 * The mean of everything that was sampled from, each value weighed by 1 / its probability (Hájek), with its 95 % interval:
 * Wilson's for as many cases of equal weight as have the variance of this mean (linearised). Null without a value.
 */
export function weighted(groups: Sampled[]): [mean: number, low: number, high: number] | null {
  const total = (of: (group: Sampled, weight: number) => number) => groups.reduce((sum, group) => sum + of(group, 1 / group.probability), 0);
  const weights = total(({ count }, weight) => weight * count);
  if (!weights) return null;
  const mean = Math.min(1, total(({ sum }, weight) => weight * sum) / weights);
  const variance = total(({ count, sum, squares }, weight) => weight ** 2 * (squares - 2 * mean * sum + count * mean ** 2)) / weights ** 2;
  const equal = weights ** 2 / total(({ count }, weight) => weight ** 2 * count);
  // Few values that are near to each other say little: no mean is surer than that of ten times as many cases.
  const cases = variance > 1e-12 ? Math.min((mean * (1 - mean)) / variance, 10 * equal) : equal;
  return [mean, ...interval(mean * cases, cases)];
}

/** How likely a lead as large is by chance: the sign test (mid-p) over cases that one of the two won. */
export function signTest(won: number, lost: number): number {
  const of = won + lost;
  let [term, tail] = [0.5 ** of, 0];
  for (let hits = 0; hits < Math.min(won, lost); hits++) {
    tail += term;
    term *= (of - hits) / (hits + 1);
  }
  return Math.min(1, 2 * tail + term);
}
