// What the parts of a graph are called, here and on the command line.

import type { Way } from "./packed.ts";
import type { Metric, State } from "./source.ts";

/** `Tone → rude`: the name of an edge. */
export function answerName(metric: Metric, answer: number): string {
  const { node, verdict } = metric.answers[answer]!;
  return `${metric.nodes[node]!.name} → ${verdict}`;
}

/** The same in an address: `Tone:rude`. */
export function answerKey(metric: Metric, answer: number): string {
  const { node, verdict } = metric.answers[answer]!;
  return `${metric.nodes[node]!.name}:${verdict}`;
}

/** Where cases ended, as a group: a last decision, a leaf below the threshold, a failure. */
export function endName(metric: Metric, way: Way, state: State): string {
  if (state === "none" && way.failure) {
    const [kind, , name] = way.failure;
    return `${name}: ${words(kind)}`;
  }
  const [node, answer] = way.end;
  if (answer != null) return answerName(metric, answer);
  const leaf = leafName(metric, way, node);
  return state === "fail" ? `${leaf} below ${limit(metric)}` : leaf;
}

/** Where one case ended: a leaf with the score it gave. */
export function ended(metric: Metric, way: Way, state: State, score: number | null): string {
  const [node, answer] = way.end;
  if (state === "none" || answer != null || score == null) return endName(metric, way, state);
  const leaf = leafName(metric, way, node);
  return `${leaf} → ${score.toFixed(2)}`;
}

/** A leaf behind decisions has its own name; a graph without decisions is its metric. */
function leafName(metric: Metric, way: Way, node: number | null): string {
  return node == null || !way.answers.length ? metric.name : metric.nodes[node]!.name;
}

function limit(metric: Metric): string {
  return metric.strict ? "1 (strict)" : String(metric.threshold ?? "");
}

/** A kind of failure as people write it. */
export function words(kind: string): string {
  return kind.replaceAll("_", " ");
}
