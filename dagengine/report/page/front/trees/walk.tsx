// How a case was decided: one step per node on its path and its feeders, in order.

import type { ComponentChildren } from "preact";
import type { Prompt } from "../data/server.ts";
import type { CaseMetric, Metric, Said, Step } from "../data/source.ts";
import { words } from "../data/names.ts";
import { Code, Fold, plain } from "../parts/texts.tsx";
import { many, money, probability, score, SIGN, took, whole } from "../parts/words.ts";
import { kindWord } from "./tree.tsx";

const ODDS = 5; // answers whose probability is told

interface Props {
  metric: Metric;
  result: CaseMetric;
  /** The prompts of every step; null where there are none. */
  prompts: Prompt[][] | null;
  /** Why there are none at all. */
  noPrompts: string | null;
  /** What people said of this case under this metric. */
  said: Said[];
  step: number | null;
  choose: (node: number | null) => void;
}

export function Walk({ metric, result, prompts, noPrompts, said, step, choose }: Props) {
  const missing = result.steps.some((each, i) => asks(each) && !prompts?.[i]?.length);
  return (
    <>
    <ol class="walk">
      {result.steps.map((each, i) => (
        <OneStep key={each.name} {...{ metric, result }} each={each} place={i + 1} now={each.node !== null && each.node === step}
          prompts={prompts?.[i] ?? []} said={said.filter((one) => one.node === each.name)} choose={() => choose(each.node)} />
      ))}
      <Sum metric={metric} result={result} />
    </ol>
    {missing && <p class="notrun">{noPrompts === null ? "Prompts that are not shown are not in this file." : `Prompts as sent: ${noPrompts}.`}</p>}
    </>
  );
}

type StepProps = Pick<Props, "metric" | "result" | "said"> & { each: Step; prompts: Prompt[]; place: number; now: boolean; choose: () => void };

function OneStep({ metric, result, prompts, said, each, place, now, choose }: StepProps) {
  const node = each.node === null ? null : metric.nodes[each.node]!;
  const broke = each.outcome !== "ok";
  const ends = each.node !== null && each.node === result.endNode && (result.state === "fail" || broke);
  const sign = broke ? "none" : "fail";
  return (
    <li class={`${ends ? `end ${sign}` : ""}${now ? " now" : ""}`}>
      <span class="dot" aria-hidden="true">{ends ? SIGN[sign] : place}</span>
      <h3>
        <button onClick={choose} aria-pressed={now} title="underline what it read">{each.name}</button>{" "}
        <span class="light">· {kindWord(each.kind)}</span>
      </h3>
      {node?.question && !(each.kind === "code" && node.question === node.name) && (
        <p class="soft">{each.kind === "code" && /^\w+$/.test(node.question) ? <code>{node.question}()</code> : <Code text={node.question} />}</p>
      )}
      {broke ? <Broken each={each} result={result} /> : <Said metric={metric} each={each} result={result} bad={ends} />}
      <Meta each={each} />
      {said.map((one, i) => <Told key={i} said={one} judge={each.verdict} />)}
      {prompts.length > 0 && (
        <Fold title={prompts.length === 1 ? "prompt as sent" : `${whole(prompts.length)} prompts as sent`}>
          {prompts.flat().map((message, i) => <div key={i} class="prompt" dir="auto"><b>{message.role}</b>{"\n"}{message.content}</div>)}
        </Fold>
      )}
      <NotTaken metric={metric} each={each} />
    </li>
  );
}

/** What a person said of a node. */
function Told({ said, judge }: { said: Said; judge: string | null }) {
  const same = said.answer !== null && judge !== null && said.answer === judge;
  return (
    <p class="told" dir="auto">
      {said.who}: <b>{said.answer ?? "cannot tell"}</b>
      {judge !== null && said.answer !== null && <span class="soft"> {same ? "✓ same" : "✕ not the same"}</span>}
      {said.note && <span class="soft"> · {said.note}</span>}
    </p>
  );
}

function asks(step: Step): boolean {
  return !["code", "field", "metric"].includes(step.kind);
}

function Broken({ each, result }: { each: Step; result: CaseMetric }) {
  const failure = result.failure?.node === each.name ? result.failure : null;
  return (
    <>
      <div class="ans none">⊘ {words(each.outcome)}</div>
      <p class="why" dir="auto">{each.reason ?? failure?.message}</p>
      {failure?.raw && <Fold title="what the judge wrote"><div class="prompt">{failure.raw}</div></Fold>}
    </>
  );
}

function Said({ metric, each, result, bad }: { metric: Metric; each: Step; result: CaseMetric; bad: boolean }) {
  const items = judgements(each.output);
  if (each.kind === "field") return <Fold title="what it hands on"><Output value={each.output} /></Fold>;
  if (each.verdict === null && items) return <Items each={each} items={items} names={itemNames(metric, each, result, items.length)} />;
  const shown = each.verdict ?? (each.score !== null ? score(each.score) : null);
  return (
    <>
      {shown !== null && <div class={`ans${bad ? " fail" : ""}`}>→ {shown}{each.mode && <span class="light sm"> ({each.mode})</span>}</div>}
      {shown === null && <Output value={each.output} />}
      {each.reason && <p class="why" dir="auto">{each.reason}</p>}
    </>
  );
}

/** What a task or code handed on: its only part, as a list or a text. */
function Output({ value }: { value: unknown }) {
  let shown = value;
  if (shown && typeof shown === "object" && !Array.isArray(shown)) {
    const parts = Object.values(shown);
    if (parts.length === 1) [shown] = parts;
  }
  if (Array.isArray(shown)) {
    if (!shown.length) return <p class="out">→ nothing</p>;
    return <ol class="out">{shown.map((item, i) => <li key={i} dir="auto">{itemText(item)}</li>)}</ol>;
  }
  return <p class="out" dir="auto">→ {plain(shown) || "nothing"}</p>;
}

interface Judgement {
  verdict: unknown;
  reason?: string | null;
}

/** The output of a node that judges items; null for any other. */
function judgements(output: unknown): Judgement[] | null {
  const list = Array.isArray(output) ? output : null;
  const all = list?.length && list.every((item) => item && typeof item === "object" && "verdict" in item);
  return all ? (list as Judgement[]) : null;
}

/** The texts of the items: the list of as many that a step before handed on. */
function itemNames(metric: Metric, each: Step, result: CaseMetric, count: number): string[] | null {
  const inputs = each.node === null ? [] : metric.nodes[each.node]!.inputs;
  const list = result.steps.find((step) => inputs.includes(step.name) && Array.isArray(step.output) && step.output.length === count);
  return list ? (list.output as unknown[]).map(itemText) : null;
}

function itemText(item: unknown): string {
  const text = item && typeof item === "object" ? (item as { text?: unknown }).text : null;
  return typeof text === "string" ? text : plain(item);
}

function Items({ each, items, names }: { each: Step; items: Judgement[]; names: string[] | null }) {
  const no = items.map((item, i) => ({ item, i })).filter(({ item }) => isNo(item.verdict));
  const rest = items.map((item, i) => ({ item, i })).filter(({ item }) => !isNo(item.verdict));
  const line = ({ item, i }: { item: Judgement; i: number }): ComponentChildren => (
    <li key={i} value={i + 1} dir="auto">
      <b class={isNo(item.verdict) ? "fail" : ""}>{isNo(item.verdict) ? "✕ " : ""}{plain(item.verdict)}</b>
      {names?.[i] && <> · {names[i]}</>}
      {item.reason && <span class="soft"> {item.reason}</span>}
    </li>
  );
  return (
    <>
      <div class="ans">→ {many(items.length, "item")}{no.length > 0 ? <span class="fail">, ✕ {whole(no.length)} no</span> : `: ${tallied(items)}`}</div>
      {no.length > 0 && <ol class="out">{no.map(line)}</ol>}
      {rest.length > 0 && <Fold title={no.length ? many(rest.length, "other") : `all ${whole(rest.length)}`} open={!no.length && rest.length <= 8}><ol class="out">{rest.map(line)}</ol></Fold>}
      {each.reason && <p class="why" dir="auto">{each.reason}</p>}
    </>
  );
}

/** `11 × 0, 2 × 1`: how often each verdict was given, the most frequent first. */
function tallied(items: Judgement[]): string {
  const counts = new Map<string, number>();
  for (const { verdict } of items) counts.set(plain(verdict), (counts.get(plain(verdict)) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([verdict, count]) => `${whole(count)} × ${verdict}`).join(", ");
}

function isNo(verdict: unknown): boolean {
  return verdict === false || (typeof verdict === "string" && verdict.toLowerCase() === "no");
}

function Meta({ each }: { each: Step }) {
  const { votes, verdict, tokens, cost, confidence } = each;
  const time = each.seconds !== null && <span>{took(each.seconds)}</span>;
  if (each.kind === "code") return <div class="meta"><span>{each.verdict === null ? "done by code" : "decided by code"}, no question asked</span>{time}</div>;
  const told = votes.filter((vote) => !Array.isArray(vote));
  const agree = told.filter((vote) => plain(vote) === verdict).length;
  const others = new Map<string, number>();
  for (const vote of told) if (plain(vote) !== verdict) others.set(plain(vote) || "nothing readable", (others.get(plain(vote) || "nothing readable") ?? 0) + 1);
  const said = [...others].map(([vote, count]) => `${count} said ${vote}`).join(", ");
  return (
    <div class="meta">
      {verdict !== null && told.length > 0 && (
        <span>
          <span aria-hidden="true">{told.map((vote, i) => <i key={i} class={`v${plain(vote) === verdict ? " y" : ""}`} />)}</span>
          {agree} of {told.length} votes{said && `, ${said}`}
        </span>
      )}
      {verdict === null && votes.length > 0 && <span>{votes.length} votes{told.length > 0 && `: ${told.map(plain).join(", ")}`}</span>}
      {each.odds ? <span>{oddsWords(each.odds)}</span> : confidence !== null && <span>probability {probability(confidence)}</span>}
      {tokens > 0 && <span>{whole(tokens)} tokens</span>}
      {cost !== null && <span>{money(cost)}</span>}
      {time}
    </div>
  );
}

/** What might have been answered, the likeliest first. */
function oddsWords(odds: [string, number][]): string {
  const shown = [...odds].sort((a, b) => b[1] - a[1]).slice(0, ODDS).map(([answer, chance]) => `${answer} ${probability(chance)}`);
  return `probability: ${shown.join(", ")}${odds.length > ODDS ? `, ${odds.length - ODDS} more` : ""}`;
}

/** Where the other answers of a decision would have led. */
function NotTaken({ metric, each }: { metric: Metric; each: Step }) {
  if (each.node === null || each.verdict === null) return null;
  const others = metric.answers.filter((a) => a.node === each.node && a.verdict !== each.verdict);
  if (!others.length) return null;
  const led = others.map((a) => `${a.verdict}${a.to !== null ? ` → ${metric.nodes[a.to]!.name}` : a.score !== null ? ` → score ${a.score}` : ""}`);
  const behind = new Set<number>();
  const visit = (node: number): void => {
    if (behind.has(node)) return;
    behind.add(node);
    for (const answer of metric.answers) if (answer.node === node && answer.to !== null) visit(answer.to);
  };
  for (const { to } of others) if (to !== null) visit(to);
  return <p class="notrun">not taken: {led.join(", ")}{behind.size > 1 && ` (+${behind.size} nodes)`}</p>;
}

/** One number, or the least and the greatest that it can be. */
function bounds([low, high]: [number, number]): string {
  return high - low < 0.005 ? probability(low) : `${probability(low)} to ${probability(high)}`;
}

/** The arithmetic of the score. */
function Sum({ metric, result }: { metric: Metric; result: CaseMetric }) {
  const limit = metric.strict ? 1 : metric.threshold;
  if (result.score === null) {
    return (
      <li class="last">
        <span class="dot" aria-hidden="true">⊘</span>
        <div class="ans none">⊘ no score</div>
        <p class="soft">{result.failure && `${words(result.failure.kind)} at ${result.failure.node}`}</p>
      </li>
    );
  }
  const answer = result.answers.map((a) => metric.answers[a]!).findLast((a) => a.score !== null && a.node === result.endNode);
  const from = answer && Math.abs(answer.score! / 10 - result.score) < 1e-9 ? `${answer.score} of 10 = ` : "";
  return (
    <li class="last">
      <span class="dot" aria-hidden="true">=</span>
      <div class={`ans${result.state === "fail" ? " fail" : ""}`}>
        {result.state !== "plain" && `${SIGN[result.state]} `}score {from}{score(result.score)}
      </div>
      {limit !== null && <p class="soft">passes at {limit}</p>}
      {result.odds && <p class="soft">expected score {bounds(result.odds.expected)}{limit !== null && `, passes with probability ${bounds(result.odds.pass)}`}</p>}
    </li>
  );
}

