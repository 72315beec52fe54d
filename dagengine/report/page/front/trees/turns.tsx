// A conversation with the verdicts beside its turns.

import { useEffect, useState } from "preact/hooks";
import { Fragment } from "preact";
import type { Case, Metric, Run } from "../data/source.ts";
import { Quotes } from "../parts/marks.tsx";
import { whole } from "../parts/words.ts";
import { ItemList } from "./items.tsx";
import { ITEM_SIGN, judgedSteps, means, type Item, type JudgedStep, type Turn } from "./judged.ts";

interface Props {
  run: Run;
  shown: Case;
  turns: Turn[];
  metric: Metric;
  /** What the metric in front judged; null where it judged no items. */
  judged: JudgedStep | null;
  /** Chooses another metric of the case. */
  other: (metric: number) => void;
}

export function Turns({ run, shown, turns, metric, judged, other }: Props) {
  const [all, setAll] = useState(false);
  useEffect(() => setAll(false), [shown, metric]);
  const verdicts = byTurn(judged?.items ?? []);
  const elsewhere = run.metrics.map((one, i) => (one === metric ? new Map<number, Item>()
    : byTurn(judgedSteps(one, shown.metrics[i]!, shown.fields).flatMap(({ items }) => items))));
  const rest = judged?.items.filter(({ turn }) => turn === null) ?? [];
  const blocks = all ? [{ from: 0, to: turns.length, folded: false }] : folds(turns, verdicts);
  const open = blocks.some(({ folded }) => folded);
  const go = (turn: number) => {
    setAll(true);
    requestAnimationFrame(() => document.getElementById(`turn-${turn + 1}`)?.scrollIntoView({ block: "center" }));
  };
  return (
    <>
      {rest.length > 0 && <section class="above"><h2>{judged!.step.name}</h2><ItemList metric={metric} items={rest} /></section>}
      <div class="bar0">
        {verdicts.size > 1
          ? (
            <nav class="replies" aria-label="Replies">
              <span class="soft">replies</span>
              {[...verdicts.values()].map((item) => (
                <button key={item.turn} class={`chip0 ${item.sign}`} onClick={() => go(item.turn!)}>{whole(item.turn! + 1)} {ITEM_SIGN[item.sign]}</button>
              ))}
            </nav>
          ) : <h2>Turns</h2>}
        {(open || all) && turns.length > 4 && (
          <span class="seg"><button aria-pressed={!all} onClick={() => setAll(false)}>folded</button><button aria-pressed={all} onClick={() => setAll(true)}>all {whole(turns.length)}</button></span>
        )}
      </div>
      <ol class="talk">
        {blocks.map(({ from, to, folded }) => folded ? (
          <li key={from} class="folded"><button class="link-b" onClick={() => setAll(true)}>Turns {from + 1}–{to}: {whole(replies(turns, from, to))} replies, all ✓</button></li>
        ) : turns.slice(from, to).map((turn, i) => {
          const place = from + i;
          const item = verdicts.get(place);
          const mine = turn.role === "assistant";
          return (
            <li key={place} id={`turn-${place + 1}`} aria-label={`turn ${place + 1}, ${turn.role}${item ? `, ${means(metric, item.verdict)}` : ""}`}>
              <span class="soft n0">{place + 1}</span>
              <div class={`bubble${mine ? " mine" : ""}${item?.sign === "fail" ? " x" : ""}`}><span class="soft sm">{turn.role}</span><div dir="auto">{turn.content}</div></div>
              <div class="said">
                {item && <Verdict metric={metric} item={item} turns={turns} items={judged!.items} go={go} />}
                {!item && judged && <Known turns={turns} place={place} items={judged.items} />}
                {elsewhere.map((items, i) => {
                  const no = items.get(place);
                  return no?.sign === "fail" && (
                    <p key={i} class="sm">also <span class="fail">✕</span> <button class="link-b" onClick={() => other(i)}>{run.metrics[i]!.name}</button>: {no.reason}</p>
                  );
                })}
              </div>
            </li>
          );
        }))}
      </ol>
    </>
  );
}

function byTurn(items: Item[]): Map<number, Item> {
  return new Map(items.flatMap((item) => (item.turn === null ? [] : [[item.turn, item] as const])).sort(([a], [b]) => a - b));
}

function replies(turns: Turn[], from: number, to: number): number {
  return turns.slice(from, to).filter(({ role }) => role === "assistant").length;
}

/** Stretches of two replies or more that passed are folded, with the turns before them; not the first and the last two turns. */
function folds(turns: Turn[], verdicts: Map<number, Item>): { from: number; to: number; folded: boolean }[] {
  const kept = turns.map((turn, i) => {
    const sign = verdicts.get(i)?.sign;
    return i < 2 || i >= turns.length - 2 || (sign !== undefined && sign !== "pass") || (turn.role === "assistant" && sign === undefined);
  });
  // What was said before a reply that failed stays with it.
  turns.forEach((turn, i) => { if (kept[i] && turn.role === "assistant" && verdicts.get(i)?.sign !== "pass" && i > 0) kept[i - 1] = true; });
  const blocks: { from: number; to: number; folded: boolean }[] = [];
  turns.forEach((_, i) => {
    const last = blocks.at(-1);
    if (last && last.folded === !kept[i]) last.to = i + 1;
    else blocks.push({ from: i, to: i + 1, folded: !kept[i] });
  });
  return blocks.map((block) => (block.folded && replies(turns, block.from, block.to) < 2 ? { ...block, folded: false } : block));
}

function Verdict({ metric, item, turns, items, go }: { metric: Metric; item: Item; turns: Turn[]; items: Item[]; go: (turn: number) => void }) {
  const fact = item.sign === "fail" && item.known ? forgotten(item.known, item.reason ?? "") : null;
  const since = fact === null ? null : since_(turns, items, fact);
  return (
    <>
      <p dir="auto"><b class={item.sign === "fail" ? "fail" : ""}>{ITEM_SIGN[item.sign]} {means(metric, item.verdict)}</b> <span class="why">{item.reason}</span></p>
      <Quotes quotes={item.quotes} />
      {fact !== null && <p class="sm soft">known{since !== null && <> since <button class="link-b" onClick={() => go(since)}>turn {since + 1}</button></>}: <b class="fact fail">{fact}</b></p>}
    </>
  );
}

/** The known fact that has most words in common with a reason; null where none has. */
function forgotten(known: string[], reason: string): string | null {
  const words = new Set(reason.toLowerCase().match(/[\p{L}\p{N}]{4,}/gu) ?? []);
  const [best] = known.map((fact) => ({ fact, equal: (fact.toLowerCase().match(/[\p{L}\p{N}]{4,}/gu) ?? []).filter((word) => words.has(word)).length }))
    .sort((a, b) => b.equal - a.equal);
  return best && best.equal ? best.fact : null;
}

/** The last turn before the first reply that was judged with a fact. */
function since_(turns: Turn[], items: Item[], fact: string): number | null {
  const first = items.find(({ known }) => known?.includes(fact));
  return first?.turn == null ? null : turns.findLastIndex((turn, i) => i < first.turn! && turn.role === "user");
}

/** What became known at a turn of the user, and what it took back. */
function Known({ turns, place, items }: { turns: Turn[]; place: number; items: Item[] }) {
  const next = items.find(({ turn, known }) => known && turn !== null && turn > place);
  const last = items.findLast(({ turn, known }) => known && turn !== null && turn < place);
  if (!next || turns.slice(place + 1, next.turn!).some(({ role }) => role === "user")) return null;
  const fresh = next.known!.filter((fact) => !last?.known?.includes(fact));
  const gone = last?.known?.filter((fact) => !next.known!.includes(fact)) ?? [];
  if (!fresh.length && !gone.length) return null;
  return (
    <p class="sm"><span class="soft">now known</span><br />
      {fresh.map((fact) => <Fragment key={fact}><span class="fact">{fact}</span> </Fragment>)}
      {gone.map((fact) => <Fragment key={fact}><del class="fact">{fact}</del> <span class="soft">outdated</span> </Fragment>)}
    </p>
  );
}
