// How a case was decided: one step per node on its path and its feeders, in order.

import type { ComponentChildren } from "preact";
import type { Prompt } from "../data/server.ts";
import type { CaseMetric, Metric, Said, Step } from "../data/source.ts";
import { words } from "../data/names.ts";
import { Quotes } from "../parts/marks.tsx";
import { Code, Fold, plain } from "../parts/texts.tsx";
import { many, money, probability, score, SIGN, took, whole } from "../parts/words.ts";
import { aboutSpans, ItemList, tallied } from "./items.tsx";
import { itemText, judgedSteps, listOf, type Item } from "./judged.ts";
import { kindWord } from "./tree.tsx";

const CALLS = 10; // calls of a step that are listed
const ODDS = 5; // answers whose probability is told

interface Props {
  metric: Metric;
  result: CaseMetric;
  fields: Record<string, unknown> | null;
  /** The prompts of every step; null where there are none. */
  prompts: Prompt[][] | null;
  /** Why there are none at all. */
  noPrompts: string | null;
  /** What people said of this case under this metric. */
  said: Said[];
  step: number | null;
  choose: (node: number | null) => void;
  /** The span in sight; null where a case has none. */
  span: string | null;
  chooseSpan: (span: string | null) => void;
}

export function Walk({ metric, result, fields, prompts, noPrompts, said, step, choose, span, chooseSpan }: Props) {
  const judged = judgedSteps(metric, result, fields);
  const missing = result.steps.some((each, i) => asks(each) && !prompts?.[i]?.length);
  return (
    <>
    <ol class="walk">
      {result.steps.map((each, i) => (
        <OneStep key={each.name} {...{ metric, result, span, chooseSpan }} each={each} items={judged.find(({ step }) => step === each)?.items ?? null} place={i + 1} now={each.node !== null && each.node === step}
          prompts={prompts?.[i] ?? []} said={said.filter((one) => one.node === each.name)} choose={() => choose(each.node)} />
      ))}
      <Sum metric={metric} result={result} />
    </ol>
    {missing && <p class="notrun">{noPrompts === null ? "Prompts that are not shown are not in this file." : `Prompts were not kept: ${noPrompts}`}</p>}
    </>
  );
}

type StepProps = Pick<Props, "metric" | "result" | "said" | "span" | "chooseSpan"> & { each: Step; items: Item[] | null; prompts: Prompt[]; place: number; now: boolean; choose: () => void };

function OneStep({ metric, result, items, prompts, said, each, place, now, choose, span, chooseSpan }: StepProps) {
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
      <p><Asked metric={metric} each={each} /></p>
      {broke ? <Broken each={each} result={result} /> : <Said metric={metric} each={each} result={result} items={items} bad={ends} span={span} chooseSpan={chooseSpan} />}
      <Meta each={each} />
      <OnTheWay each={each} />
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

/** The calls of a step whose questions needed several; of one that went straight through nothing. */
function OnTheWay({ each }: { each: Step }) {
  if (!each.calls) return null;
  const calls = each.calls.questions.flat();
  const slowest = [...calls].sort((a, b) => b.seconds - a.seconds).slice(0, CALLS);
  const shown = calls.length > CALLS ? slowest : calls;
  return (
    <Fold title={each.calls.words} open={each.outcome !== "ok"}>
      <table class="wins way">
        <thead><tr><th>call</th><th class="num nw">waited</th><th class="num nw">took</th><th class="num nw">tokens</th></tr></thead>
        <tbody>
          {shown.map(({ outcome, seconds, waited, usage, message }) => (
            <tr>
              <td dir="auto">{outcome === "ok" ? `${SIGN.pass} answered` : `${SIGN.none} ${outcome === "unparseable" ? "not usable" : words(outcome)}: ${message}`}</td>
              <td class="num nw">{waited ? took(waited) : "·"}</td>
              <td class="num nw">{took(seconds)}</td>
              <td class="num nw">{usage ? whole(usage.input_tokens + usage.output_tokens) : "·"}{usage && usage.cached_tokens > 0 && <span class="soft"> {whole(usage.cached_tokens)} from cache</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {shown.length < calls.length && <p class="soft sm">the {CALLS} slowest of {whole(calls.length)} calls</p>}
    </Fold>
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

type SaidProps = Pick<StepProps, "metric" | "each" | "result" | "items" | "span" | "chooseSpan"> & { bad: boolean };

function Said({ metric, each, result, items, bad, span, chooseSpan }: SaidProps) {
  if (each.kind === "field") return <Fold title="what it hands on"><Output result={result} each={each} /></Fold>;
  if (items) {
    return (
      <>
        <div class="ans">→ {many(items.length, "item")} <span class={items.some(({ sign }) => sign === "fail") ? "fail" : ""}>{tallied(metric, items)}</span></div>
        <ItemList metric={metric} items={items} {...(aboutSpans({ items }) ? { chosen: items.find((item) => item.span === span)?.number ?? null, choose: (number: number) => chooseSpan(items[number - 1]!.span) } : {})} />
        {each.reason && <p class="why" dir="auto">{each.reason}</p>}
      </>
    );
  }
  const rated = each.kind === "rating" && typeof each.output === "number" ? `${Number(each.output.toPrecision(4))} → ` : "";
  const shown = each.verdict ?? (each.score !== null ? rated + score(each.score) : null);
  return (
    <>
      {shown !== null && <div class={`ans${bad ? " fail" : ""}`}>→ {shown}{each.mode && <span class="light sm"> ({each.mode})</span>}</div>}
      {shown === null && <Output result={result} each={each} />}
      {each.reason && <p class="why" dir="auto">{each.reason}</p>}
      <Quotes quotes={each.quotes} />
    </>
  );
}

const FOLDED = 5; // items of a list that are shown at first

/** What a task or code handed on: a list by its beginning, one that stood before by its name, anything else by name and value. */
function Output({ result, each }: { result: CaseMetric; each: Step }) {
  const list = listOf(each.output);
  const before = list && sameList(result, each, list);
  if (before) return <p class="out">→ {before}</p>;
  if (list) {
    if (!list.length) return <p class="out">→ nothing</p>;
    const item = (one: unknown, i: number) => <li key={i} value={i + 1} dir="auto">{one && typeof one === "object" && typeof (one as { text?: unknown }).text !== "string" ? <Values value={one} /> : itemText(one)}</li>;
    const shown = list.length === FOLDED + 1 ? list : list.slice(0, FOLDED);
    return (
      <>
        <ol class="out">{shown.map(item)}</ol>
        {list.length > shown.length && <Fold title={`${whole(list.length - shown.length)} more of ${whole(list.length)}`}><ol class="out">{list.slice(shown.length).map((one, i) => item(one, i + shown.length))}</ol></Fold>}
      </>
    );
  }
  const parts = each.output && typeof each.output === "object" ? Object.values(each.output) : null;
  const only = parts?.length === 1 ? parts[0] : each.output;
  if (only && typeof only === "object") return <Values value={only} />;
  return <p class="out" dir="auto">→ {plain(only) || "nothing"}</p>;
}

/** An output that no screen knows: a table of names and values, two levels deep, the rest folded. */
function Values({ value, depth = 0 }: { value: object; depth?: number }) {
  const entries = Object.entries(value);
  return (
    <table class="values">
      <tbody>
        {entries.slice(0, 20).map(([name, part]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td dir="auto">{part && typeof part === "object" ? (depth < 1 ? <Values value={part} depth={depth + 1} /> : <Fold title="more"><div class="prompt">{plain(part)}</div></Fold>) : plain(part)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** In words, where a list is that of an earlier step, or a part of it. */
function sameList(result: CaseMetric, each: Step, list: unknown[]): ComponentChildren {
  if (!list.length) return null;
  const own = list.map(itemText);
  for (const step of result.steps.slice(0, result.steps.indexOf(each))) {
    const other = listOf(step.output)?.map(itemText);
    if (!other?.length || other.length < own.length || !own.every((text) => other.includes(text))) continue;
    return other.length === own.length ? <>the same list as <b>{step.name}</b></> : <>{whole(own.length)} of {whole(other.length)} of <b>{step.name}</b></>;
  }
  return null;
}

/** How a score was counted, where a view of its own shows the items: one line for each step. */
export function Steps({ metric, result, fields }: { metric: Metric; result: CaseMetric; fields: Record<string, unknown> | null }) {
  const judged = judgedSteps(metric, result, fields);
  return (
    <section class="counted">
      <h2>How it was counted</h2>
      <table class="steps0">
        <thead class="vh"><tr><th>step</th><th>kind</th><th>what came out</th><th>tokens</th><th>time</th></tr></thead>
        <tbody>
          {result.steps.map((each, i) => {
            const items = judged.find(({ step }) => step === each)?.items;
            const list = listOf(each.output);
            const broke = each.outcome !== "ok";
            const last = i === result.steps.length - 1 && result.score !== null;
            return (
              <tr key={each.name}>
                <th scope="row"><span class={`g ${broke ? "none" : items?.some(({ sign }) => sign === "fail") ? "fail" : ""}`}>{broke ? SIGN.none : items?.some(({ sign }) => sign === "fail") ? SIGN.fail : i + 1}</span> {each.name}</th>
                <td class="soft nw">{kindWord(each.kind)}</td>
                <td dir="auto">
                  <Asked metric={metric} each={each} />{" "}
                  {broke ? <b class="none">{words(each.outcome)}{each.reason && `: ${each.reason}`}</b>
                    : items ? <b class={items.some(({ sign }) => sign === "fail") ? "fail" : ""}>→ {tallied(metric, items)}</b>
                    : list ? <>→ {sameList(result, each, list) ?? <b>{whole(list.length)}</b>}</>
                    : each.verdict !== null ? <b>→ {each.verdict}</b>
                    : last ? <b class={result.state === "fail" ? "fail" : ""}>→ {score(result.score!)}</b>
                    : typeof each.output === "string" ? `→ ${each.output.slice(0, 120)}` : null}
                  {last && each.reason && <span class="soft"> {each.reason.split("\n", 1)[0]}</span>}
                  <OnTheWay each={each} />
                </td>
                <td class="num soft nw">{each.tokens > 0 && `${whole(each.tokens)} tokens`}</td>
                <td class="num soft nw">{each.seconds !== null && took(each.seconds)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

/** What a step was asked, or does: code by its name in words. */
function Asked({ metric, each }: { metric: Metric; each: Step }) {
  const question = each.node === null ? null : metric.nodes[each.node]!.question;
  if (!question || question === each.name) return null;
  return <span class="soft q0">{each.kind === "code" && /^\w+$/.test(question) ? question.replaceAll("_", " ") : <Code text={question} />}</span>;
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
      {tokens > 0 && <span>{whole(tokens)} tokens{each.cached > 0 && `, ${whole(each.cached)} from cache`}</span>}
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

