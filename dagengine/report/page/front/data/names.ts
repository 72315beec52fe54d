// What the parts of a graph are called, here and on the command line.

import type { Kind } from "./packed.ts";
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
export function endName(metric: Metric, kind: Kind, state: State): string {
  if (state === "none" && kind.failure) {
    const [failure, , name] = kind.failure;
    return `${name}: ${words(failure)}`;
  }
  const [node, answer] = kind.end;
  if (answer != null) return answerName(metric, answer);
  const leaf = leafName(metric, kind, node);
  return state === "fail" ? `${leaf} below ${limit(metric)}` : leaf;
}

/** Where one case ended: a leaf with the score it gave. */
export function ended(metric: Metric, kind: Kind, state: State, score: number | null): string {
  const [node, answer] = kind.end;
  if (state === "none" || answer != null || score == null) return endName(metric, kind, state);
  const leaf = leafName(metric, kind, node);
  return `${leaf} → ${score.toFixed(2)}`;
}

/** A leaf behind decisions has its own name; a graph without decisions is its metric. */
function leafName(metric: Metric, kind: Kind, node: number | null): string {
  return node == null || !kind.answers.length ? metric.name : metric.nodes[node]!.name;
}

function limit(metric: Metric): string {
  return metric.strict ? "1 (strict)" : String(metric.threshold ?? "");
}

/** A kind of failure as people write it. */
export function words(kind: string): string {
  return kind.replaceAll("_", " ");
}
