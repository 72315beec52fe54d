// The plain data that every screen gets from the source (`engine.ts`).

/** How a case ended under one metric: `plain` has a score and no threshold to compare with. */
export type State = "fail" | "none" | "pass" | "plain";

export interface Node {
  name: string;
  kind: string;
  question: string | null;
  reads: string[];
  inputs: string[];
  hash: string | null;
  /** The node that stands for the metric that it is in; null for one of the metric itself. */
  inside: number | null;
  /** How many votes were cast per question; 1 without a panel. */
  votes: number;
  /** How many solved examples its prompts show; absent without any. */
  examples?: number;
}

/** An answer of a decision, or of a node that judges items: the edge `node → verdict`. */
export interface Answer {
  node: number;
  verdict: string;
  /** Where it leads: a node, or a score from 0 to 10; both null where it leads nowhere. */
  to: number | null;
  score: number | null;
}

export type Box = [x: number, y: number, width: number, height: number];

/** A subtree that is not drawn, and what it stands for. */
export interface Stub {
  box: Box;
  nodes: number[];
  /** The answers that lead into it. */
  by: number[];
}

/** One drawing of a graph, laid out by Graphviz; all lists go by node or answer. */
export interface Layout {
  width: number;
  height: number;
  nodes: (Box | null)[];
  /** A shared edge is not the only one to its target: it says its own count. */
  edges: ({ path: string; label: [number, number] | null; shared: boolean } | null)[];
  leaves: (Box | null)[];
  feeds: { from: number; to: number; path: string; runs: boolean }[];
  stubs: Stub[];
  /** Metrics under verdicts that are unfolded, the outermost first. */
  frames: { node: number; box: Box }[];
  /** The answers of a node that no case took, with the nodes that nothing else leads to. */
  never: Never[];
}

export interface Never {
  node: number;
  answers: number[];
  nodes: number;
  words: string;
  box: Box;
  path: string;
  label: [number, number] | null;
}

export interface Metric {
  name: string;
  threshold: number | null;
  strict: boolean;
  hash: string | null;
  nodes: Node[];
  answers: Answer[];
  /** Edges without an answer: `runs` ones start their reader, the others only hand data on. */
  feeds: { from: number; to: number; runs: boolean }[];
  /** Whole; where that has no room also folded to fit, then folded with one stub open; empty where there was no Graphviz. */
  layouts: Layout[];
  /** The drawing in which a metric under a verdict is unfolded, by the number of its node. */
  nested: Record<string, Layout>;
  /** Of a rubric the mean points as shares with their intervals, of all criteria and by tag. */
  points?: [name: string, mean: number, low: number | null, high: number | null, cases: number][];
}

export interface Judge {
  name: string;
}

/** What a run says of itself. Money is in US dollars; null is "no price known". */
export interface Run {
  name: string;
  folder: string;
  started: string | null;
  seconds: number | null;
  finished: boolean;
  exit: string | null;
  error: string | null;
  data: string | null;
  metricFile: string | null;
  command: string | null;
  /** The command that holds the judge against the labels in the folder. */
  benchmark: string;
  /** Cases that the run was to judge, and those that have a row. */
  planned: number | null;
  cases: number;
  judges: Judge[];
  /** What checkups and judge cards found of them before, as sentences. */
  standings: string[];
  questions: number | null;
  /** Calls after the first one of a question: after an error, or an answer that did not fit. */
  retried: number | null;
  tokens: number | null;
  /** Those of them that the provider had in its cache. */
  cached: number | null;
  cost: number | null;
  metrics: Metric[];
  /** Which texts are there: of all cases, of those that failed, or of none (and why). */
  texts: "all" | "some" | "none";
  kept: number;
  /** What the caller says the run was made with, as texts. */
  settings: [name: string, value: string][];
  /** Why there are no prompts at all; null where the store of the run has them. */
  noPrompts: string | null;
  /** What became of the drafts of a synthesis; missing in any other run, and in one of very many. */
  drafts?: Draft[];
  /** On how many days (UTC) its traces began; 0 for other cases. */
  days: number;
  /** What a watch raised, the latest last. */
  alarms: Alarm[];
}

/** Scores of a watch have left their baseline, or old questions get other answers (group "judge"). */
export interface Alarm {
  day: string | null;
  row: number;
  metric: string;
  group: string;
  before: number;
  now: number;
  cases: number;
  cause: string;
  again: number;
  path: string | null;
  time: string;
}

/** Cases of one day and stratum that were judged with one probability; sums are over their scores. */
export interface DayGroup {
  day: string;
  stratum: string | null;
  probability: number;
  cases: number;
  passed: number;
  failed: number;
  none: number;
  scored: number;
  sum: number;
  squares: number;
}

/** A draft of a synthesis: the golden that it became, or why it did not. */
export interface Draft {
  /** The number of its row. */
  case: number;
  /** Its input or scenario, as far as it was written. */
  text: string;
  /** What it is about, with the place of its passage. */
  source: string;
  kind: string;
  /** What dropped it: a node, or what is said of it; missing where it became a golden. */
  cause?: string;
  why?: string;
  /** The text that a near duplicate repeats. */
  repeats?: string;
  answer?: string;
  sentences: string[];
}

/** One condition of a filter. All of them hold at once. */
export interface Part {
  /** Answer taken, node reached, end, bin of the distribution, set of metrics that failed, day and stratum of the trace. */
  kind: "e" | "n" | "end" | "b" | "set" | "day" | "stratum";
  key: string;
  not: boolean;
}

export interface Filter {
  metric: number;
  parts: Part[];
  text: string;
}

/** Which rows of a filter the table shows; `any`, `missing` and `passed` are about all metrics. */
export type Chosen = "fail" | "none" | "pass" | "all" | "unsure" | "any" | "missing" | "passed";

export interface Order {
  by: string;
  down: boolean;
}

interface Count {
  cases: number;
  failed: number;
  none: number;
}

/** The answers of one node: `split` counts cases whose votes were not all the same. */
export interface AnswerCount extends Count {
  split: number;
  /** For nodes that judge items: how many items got it. */
  items: number;
}

export interface NodeCount extends Count {
  /** Cases whose score is missing because of this node, by kind of failure. */
  broken: Record<string, number>;
}

export interface End {
  key: string;
  label: string;
  state: "fail" | "none";
  node: number | null;
  answer: number | null;
  cases: number;
  /** The reason of the first case. */
  why: string;
}

export interface Scores {
  mean: number;
  median: number;
  /** Standard deviation of the sample; null for one score. */
  spread: number | null;
  lowest: number;
}

export interface Counts {
  /** Cases of the filter. */
  cases: number;
  passed: number;
  failed: number;
  none: number;
  plain: number;
  unsure: number;
  /** Eleven bins of the score: 0, 0.1 … 1. */
  bins: { passed: number; failed: number }[];
  scores: Scores | null;
  answers: AnswerCount[];
  nodes: NodeCount[];
}

/** One metric of many, in the cases of a filter. */
export interface Strip {
  failed: number;
  none: number;
  passed: number;
  mean: number | null;
}

export interface Many {
  strips: Strip[];
  /** Sets of metrics that fail in the same cases, the largest first. */
  together: { metrics: number[]; cases: number }[];
  /** Cases by their one state: some metric failed; none failed and some gave no score; all passed. */
  any: number;
  missing: number;
  passed: number;
}

export interface Score {
  state: State;
  score: number | null;
  /** The kind of failure where there is no score. */
  kind: string | null;
}

export interface Row {
  index: number;
  name: string;
  scores: Score[];
  /** The metric that `end`, `why` and `votes` are of: that of the filter, or of several the worst. */
  about: number;
  /** The last decision (or the leaf). */
  end: string;
  /** How many items got which answer; in an arena, how many orders who won. */
  votes: [answer: number, count: number][];
  why: string | null;
  first: string | null;
  /** The answer that was judged, by its beginning. */
  output: string | null;
  path: string;
  split: number;
  questions: number;
  tokens: number;
  /** US dollars; null where a price is not known. */
  cost: number | null;
  /** What the nodes of the metric took, added up; null where it is not known. */
  seconds: number | null;
  tags: string[];
  said: Said[];
}

/** What a person said of a node, or (node "") of a case as a whole. */
export interface Said {
  who: string;
  when: string;
  metric: string;
  node: string;
  /** Null for "cannot tell". */
  answer: string | null;
  /** Of a case: pass, fail or a score. */
  outcome: string | null;
  note: string | null;
}

export interface Window {
  total: number;
  rows: Row[];
}

export interface Step {
  node: number | null;
  name: string;
  kind: string;
  outcome: string;
  verdict: string | null;
  output: unknown;
  reason: string | null;
  score: number | null;
  mode: string | null;
  confidence: number | null;
  votes: unknown[];
  tokens: number;
  cost: number | null;
  /** How long the case waited for it; null where it is not known. */
  seconds: number | null;
  /** What it might have answered, each with its probability; null without. */
  odds: [string, number][] | null;
  /** What happened on the way: the calls of questions that needed several; null without. */
  calls: Calls | null;
  /** Tokens of its prompts that the provider had in its cache. */
  cached: number;
  /** The words that its verdict, or those of its items, stand on. */
  quotes: Quote[];
  /** The ids of the spans that its verdict, or those of its items, are about. */
  spans: string[];
}

/** Words that a verdict stands on; `item` counts from 1, and is 0 for a step without a list. */
export interface Quote {
  item: number;
  text: string;
  /** What prompts call the text that they are from. */
  piece: string;
  /** First and last position (excluded) of each part there, in characters; none where it is not there. */
  places: [number, number][];
  /** What the material does not say, in the judge's words. */
  absent?: boolean;
}

export interface Calls {
  /** All of them in one sentence. */
  words: string;
  questions: Call[][];
}

/** A call to a judge; `waited` seconds after the call before it. */
export interface Call {
  outcome: string;
  seconds: number;
  waited?: number;
  usage?: { input_tokens: number; output_tokens: number; cached_tokens: number };
  /** What was wrong. */
  message?: string;
}

export interface CaseMetric extends Score {
  end: string;
  endNode: number | null;
  reason: string | null;
  failure: { kind: string; node: string; message: string; raw: string | null } | null;
  /** Answers taken. */
  answers: number[];
  steps: Step[];
  /** What the odds of all paths come to; null without. */
  odds: Odds | null;
}

/** The least and the greatest that the score and the chance to pass can be. */
export interface Odds {
  expected: [number, number];
  pass: [number, number];
}

export interface Case {
  index: number;
  name: string;
  hash: string | null;
  /** Fields by name; null where the texts are not there. */
  fields: Record<string, unknown> | null;
  metrics: CaseMetric[];
  said: Said[];
  /** From its first node to its results. */
  seconds: number | null;
}
