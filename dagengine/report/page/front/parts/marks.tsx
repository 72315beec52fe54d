// Where a text says what an item says: the words themselves, else the sentence with most equal words.

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Quote } from "../data/source.ts";

export interface Span {
  start: number;
  end: number;
  /** Equal words of all words, where the words themselves do not stand in the text. */
  equal: [number, number] | null;
}

const HALF = 0.5;

/** The place of an item in a text; null where less than half of its words stand together. */
export function spanOf(text: string, wanted: string): Span | null {
  const plain = wanted.replace(/[.!?]+$/, "");
  const exact = plain ? text.toLowerCase().indexOf(plain.toLowerCase()) : -1;
  if (exact >= 0) return { start: exact, end: exact + plain.length, equal: null };
  const words = new Set(wordsOf(wanted));
  let best: Span | null = null;
  for (const { 0: sentence, index } of text.matchAll(/[^.!?\n]+[.!?]*/g)) {
    const there = new Set(wordsOf(sentence));
    const equal = [...words].filter((word) => there.has(word)).length;
    const start = index + sentence.length - sentence.trimStart().length;
    if (equal >= HALF * words.size && equal > (best?.equal?.[0] ?? 0)) best = { start, end: index + sentence.trimEnd().length, equal: [equal, words.size] };
  }
  return best;
}

/** The marks of quotes in the text of a piece; `before` characters stand in front of it. */
export function marksOf(text: string, piece: string, quotes: Quote[], before = 0): Mark[] {
  // Python counts characters, and a browser halves of some.
  const all = [...text];
  const at = (place: number) => before + (all.length === text.length ? place : all.slice(0, place).join("").length);
  return quotes.filter((quote) => quote.piece === piece).flatMap(({ places, item }) => places.map(([start, end]) => (
    { span: { start: at(start), end: at(end), equal: null }, number: item, look: "piece on", sign: "", name: "" }
  )));
}

/** What a verdict stands on, in words: the quotes, and which of them are nowhere. */
export function Quotes({ quotes }: { quotes: Quote[] }) {
  return (
    <>
      {quotes.map(({ text, piece, places, absent }, i) => (
        <p key={i} class="quote" dir="auto">
          {absent ? <><span class="soft">not said:</span> {text}</>
            : places.length ? <><q>{text}</q> <span class="soft sm">{piece}</span></>
            : <><span class="none">⊘</span> <q>{text}</q> <span class="soft sm">not in {piece || "the case"}</span></>}
        </p>
      ))}
    </>
  );
}

function wordsOf(text: string): string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
}

export interface Mark {
  span: Span;
  number: number;
  look: string;
  /** What stands raised behind it. */
  sign: string;
  name: string;
}

interface Props {
  text: string;
  marks: Mark[];
  chosen: number | null;
  choose?: (number: number) => void;
}

/** A judged text with marked words, each a button; the chosen one comes into sight. */
export function Marked({ text, marks, chosen, choose }: Props) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const [frame, mark] = [box.current, box.current?.querySelector<HTMLElement>("[data-on]")];
    if (frame && mark) frame.scrollTop = mark.offsetTop - frame.clientHeight / 3;
  }, [chosen, text]);
  const parts: preact.ComponentChildren[] = [];
  let at = 0;
  for (const mark of [...marks].sort((a, b) => a.span.start - b.span.start || b.span.end - a.span.end)) {
    const { start, end } = mark.span;
    if (start < at) continue; // words of an item before it
    const on = mark.number === chosen;
    parts.push(text.slice(at, start), (
      <mark key={start} class={`${mark.look}${on ? " on" : ""}`} data-on={on || undefined}
        {...(choose ? { role: "button", tabIndex: 0, "aria-label": mark.name, onClick: () => choose(mark.number), onKeyDown: (event: KeyboardEvent) => event.key === "Enter" && choose(mark.number) } : {})}>
        {text.slice(start, end)}{mark.sign && <sup>{mark.sign}</sup>}
      </mark>
    ));
    at = end;
  }
  return <div class="txt marked" dir="auto" ref={box}>{parts}{text.slice(at)}</div>;
}
