// The spans of a trace as a tree.

type Fields = Record<string, unknown> | null;

/** A step of a trace, as a case has it. */
export interface TraceSpan {
  span_id: string;
  trace_id?: string | null;
  parent_id?: string | null;
  kind: string;
  name: string;
  input?: unknown;
  output?: unknown;
  documents?: unknown[];
  error?: string;
  seconds?: number;
  input_token_count?: number;
  output_token_count?: number;
}

/** The spans of a case in their order; null for a case without a trace, or where they are hidden. */
export function traceOf(fields: Fields): TraceSpan[] | null {
  const spans = fields?.spans;
  return Array.isArray(spans) && spans.length && spans.every((span) => typeof span?.span_id === "string") ? (spans as TraceSpan[]) : null;
}

const LONGEST = 120; // characters of what a span was given, in its title

/** What a span is called in a list: its name, and what it was given; null without such a span. */
export function titleOf(trace: TraceSpan[] | null, id: string | undefined): string | null {
  const span = trace?.find(({ span_id }) => span_id === id);
  if (!span) return null;
  const given = span.input == null ? "" : typeof span.input === "string" ? span.input : JSON.stringify(span.input);
  return `${span.name} ${given.length > LONGEST ? `${given.slice(0, LONGEST)}…` : given}`.trim();
}

export interface Branch {
  span: TraceSpan;
  depth: number;
  /** The place of the branch that it is in; -1 for a root. */
  inside: number;
}

/** The spans as a tree from above: after each those in it. What no root leads to is a root. */
export function branches(trace: TraceSpan[]): Branch[] {
  const ids = new Set(trace.map(({ span_id }) => span_id));
  const children = new Map<string, TraceSpan[]>();
  const isRoot = ({ span_id, parent_id }: TraceSpan) => !parent_id || parent_id === span_id || !ids.has(parent_id);
  for (const span of trace) if (!isRoot(span)) children.set(span.parent_id!, [...(children.get(span.parent_id!) ?? []), span]);
  const tree: Branch[] = [];
  const seen = new Set<TraceSpan>();
  // The parents of a damaged trace may go in a circle: what is left then begins at its first span.
  for (const root of [...trace.filter(isRoot), ...trace]) {
    const waiting: Branch[] = [{ span: root, depth: 0, inside: -1 }];
    for (let branch = waiting.pop(); branch; branch = waiting.pop()) {
      if (seen.has(branch.span)) continue;
      seen.add(branch.span);
      const [inside, depth] = [tree.push(branch) - 1, branch.depth + 1];
      waiting.push(...(children.get(branch.span.span_id) ?? []).map((span) => ({ span, depth, inside })).reverse());
    }
  }
  return tree;
}
