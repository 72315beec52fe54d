// An arena: who won, by how many orders; `Contest` in `dagengine/report/pictures/metric_graph.py` reads the same.

import type { Counts, Metric } from "./source.ts";

export const TIE = "tie";

export interface Ballot {
  order: string[];
  /** Null for a tie. */
  winner: string | null;
  reason: string;
}

export interface Contest {
  winner: string;
  ballots: Ballot[];
  /** What was said of the first order that the winner won. */
  reason: string;
}

/** The contest in the output of a step; null for any other output. */
export function contestOf(output: unknown): Contest | null {
  const { winner, ballots } = (output ?? {}) as { winner?: string | null; ballots?: Ballot[] };
  if (!Array.isArray(ballots) || !ballots.length || !ballots.every((ballot) => ballot && "order" in ballot && "reason" in ballot)) return null;
  const won = ballots.find((ballot) => (ballot.winner ?? TIE) === (winner ?? TIE)) ?? ballots[0]!;
  return { winner: winner ?? TIE, ballots: ballots.map((ballot) => ({ ...ballot, winner: ballot.winner ?? null })), reason: won.reason };
}

export interface Contestant {
  name: string;
  /** The answer that stands for its wins, and the one for its votes; null where it has none. */
  wins: number | null;
  votes: number | null;
}

export interface Arena {
  /** The node whose answers are winners. */
  winner: string;
  contestants: Contestant[];
  tie: Contestant;
  /** The answers that stand for the place of a winner, the first place first. */
  places: number[];
}

/** The contestants of a metric that compares; null for any other metric. */
export function arenaOf(metric: Metric): Arena | null {
  const asked = metric.nodes.findIndex(({ kind }) => kind === "comparison");
  if (asked < 0) return null;
  const counted = metric.nodes.findIndex(({ inputs }) => inputs.includes(metric.nodes[asked]!.name));
  const answer = (node: number, verdict: string) => {
    const place = metric.answers.findIndex((one) => one.node === node && one.verdict === verdict);
    return place < 0 ? null : place;
  };
  const drawn = metric.nodes.findIndex(({ name }) => name === metric.nodes[asked]!.inputs[0]);
  const names = new Set(metric.answers.filter(({ node }) => node === asked || node === counted).map(({ verdict }) => verdict));
  const contestant = (name: string): Contestant => ({ name, wins: answer(counted, name), votes: answer(asked, name) });
  const places: number[] = [];
  for (let place = answer(drawn, "shown 1"); place !== null; place = answer(drawn, `shown ${places.length + 1}`)) places.push(place);
  return {
    winner: metric.nodes[counted]?.name ?? "",
    contestants: [...names].filter((name) => name !== TIE).map(contestant),
    tie: contestant(TIE),
    places,
  };
}

/** Contestants by wins. */
export function ranking(arena: Arena, counts: Counts): { of: Contestant; wins: number }[] {
  return arena.contestants
    .map((of) => ({ of, wins: wins(of, counts) }))
    .sort((a, b) => b.wins - a.wins || a.of.name.localeCompare(b.of.name));
}

export function wins({ wins }: Contestant, counts: Counts): number {
  return wins === null ? 0 : counts.answers[wins]!.cases;
}
