// What was wrong with an answer: the items that failed, the words they are of, the piece that says otherwise.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { CaseMetric, Metric } from "../data/source.ts";
import { Marked, marksOf, Quotes, spanOf, type Mark, type Span } from "../parts/marks.tsx";
import { Fold, Judged as Text, plain } from "../parts/texts.tsx";
import { many, whole } from "../parts/words.ts";
import { ITEM_SIGN, lost, means, type Item, type JudgedStep, type Sign } from "./judged.ts";

const FOLDED = 5; // items of a list that are shown at first
const MORE = 50; // and that are added
const SIGNS: Sign[] = ["fail", "open", "plain", "pass"];

const SHOWN = 50; // criteria that are shown at first

/** The criteria of a rubric: what costs points first, then what brought most. */
export function Criteria({ items }: { items: Item[] }) {
  const [room, setRoom] = useState(SHOWN);
  const ordered = [...items].sort((a, b) => lost(b) - lost(a) || Math.abs(b.criterion?.won ?? 0) - Math.abs(a.criterion?.won ?? 0));
  return (
    <>
      <table class="criteria">
        <thead><tr><th class="num">points</th><th>criterion</th><th>verdict</th><th>why</th></tr></thead>
        <tbody>
          {ordered.slice(0, room).map((item) => (
            <tr key={item.number} class={item.sign}>
              <td class="num nw"><b class={lost(item) > 0 ? "fail" : ""}>{pointsOf(item)}</b></td>
              <td dir="auto">{item.criterion!.name && <b>{item.criterion!.name}: </b>}{item.text}{item.criterion!.tags?.map((tag) => <span key={tag} class="light sm"> · {tag}</span>)}</td>
              <td class="nw">{ITEM_SIGN[item.sign]} {item.verdict}</td>
              <td dir="auto">{item.reason}<Quotes quotes={item.quotes} /></td>
            </tr>
          ))}
        </tbody>
      </table>
      {room < items.length && <button class="link-b rest" onClick={() => setRoom(items.length)}>{whole(items.length - room)} more</button>}
    </>
  );
}

/** `+5`, `−8`, or what was won of what there was: `0 of 5`. */
function pointsOf({ criterion }: Item): string {
  const { gate, points = 0, won } = criterion!;
  if (gate) return "gate";
  const shown = (number: number, plus = "") => `${number > 0 ? plus : number < 0 ? "−" : ""}${Math.abs(number)}`;
  if (won === undefined) return `of ${shown(points)}`;
  return won === points ? shown(points, "+") : `${shown(won)} of ${shown(points)}`;
}

/** Items of one sign: five, then how many more there are; six if only one would be left. */
export function ItemList({ metric, items, chosen, choose }: { metric: Metric; items: Item[]; chosen?: number | null; choose?: (number: number) => void }) {
  if (items[0]?.criterion) return <Criteria items={items} />;
  const groups = SIGNS.map((sign) => items.filter((item) => item.sign === sign)).filter((group) => group.length);
  const first = groups.find((group) => group.some(({ number }) => number === chosen)) ?? groups[0];
  return (
    <>
      {groups.map((group, i) => (
        <Group key={group[0]!.sign + String(group === first)} {...{ metric, group, chosen, choose }} open={i === 0 || group === first} />
      ))}
    </>
  );
}

interface GroupProps {
  metric: Metric;
  group: Item[];
  open: boolean;
  chosen?: number | null | undefined;
  choose?: ((number: number) => void) | undefined;
}

function Group({ metric, group, open, chosen, choose }: GroupProps) {
  const { sign } = group[0]!;
  const [room, setRoom] = useState(open ? FOLDED : 0);
  const last = group.findIndex(({ number }) => number === chosen) + 1;
  const enough = Math.max(room, open ? last : 0);
  const shown = group.length - enough === 1 && enough ? group.length : Math.min(enough, group.length);
  const rest = group.slice(shown);
  const said = [...new Set(group.map(({ verdict }) => means(metric, verdict)))].slice(0, 3).join(", ");
  return (
    <>
      {shown > 0 && (
        <ol class="items">
          {group.slice(0, shown).map((item) => (
            <li key={item.number} class={`${item.sign}${item.number === chosen ? " on" : ""}`} aria-current={item.number === chosen || undefined}>
              <b class={`no ${sign === "fail" ? "fail" : "soft"}`}>{ITEM_SIGN[sign]} {item.number}</b>
              <div>
                {choose
                  ? <button data-item={item.number} onClick={() => choose(item.number)} dir="auto"><b>{item.text ?? means(metric, item.verdict)}</b></button>
                  : <b dir="auto">{item.text ?? means(metric, item.verdict)}</b>}
                {sign === "plain" && item.text !== null && <span> · {item.verdict}</span>}
                {item.reason && <p class="why" dir="auto">{item.reason}</p>}
                <Quotes quotes={item.quotes} />
              </div>
            </li>
          ))}
        </ol>
      )}
      {rest.length > 0 && (
        <button class="link-b rest" aria-expanded={false} onClick={() => setRoom(shown + (shown ? MORE : Math.max(FOLDED, MORE)))}>
          {whole(rest.length)}{shown > 0 ? " more" : ""} {said}{rest.length <= 12 && `: ${rest.map(({ number }) => number).join(", ")}`}
        </button>
      )}
    </>
  );
}

/** `✕ contradicted 7, ✓ supported 18` */
export function tallied(metric: Metric, items: Item[]): string {
  return SIGNS.flatMap((sign) => {
    const group = items.filter((item) => item.sign === sign);
    if (!group.length) return [];
    if (sign === "plain") return [...new Set(group.map(({ verdict }) => verdict))].map((verdict) => `${whole(group.filter((item) => item.verdict === verdict).length)} × ${verdict}`);
    const word = group[0]!.criterion ? "" : ` ${means(metric, group[0]!.verdict)}`;
    return [`${ITEM_SIGN[sign]}${word} ${whole(group.length)}`];
  }).join(", ");
}

interface Props {
  metric: Metric;
  result: CaseMetric;
  judged: JudgedStep;
  fields: Record<string, unknown> | null;
  /** Why there are no texts. */
  missing: string;
  /** The trace with the span in sight, where the case has one. */
  trace: ComponentChildren;
  span: string | null;
  chooseSpan: (span: string | null) => void;
}

/** Whether items are about spans of a trace, each about its own. */
export function aboutSpans({ items }: Pick<JudgedStep, "items">): boolean {
  return items.some(({ span }) => span !== null);
}

export function ItemsView({ metric, judged, fields, missing, trace, span, chooseSpan }: Props) {
  const { items } = judged;
  const bad = items.filter(({ sign }) => sign === "fail");
  const [only, setOnly] = useState<Sign | null>(null);
  const [picked, setChosen] = useState(bad[0]?.number ?? items[0]!.number);
  const spans = aboutSpans(judged);
  const chosen = (spans && items.find((one) => one.span === span)?.number) || picked;
  const choose = (number: number) => {
    setChosen(number);
    if (spans) chooseSpan(items[number - 1]!.span);
  };
  useEffect(() => {
    setChosen(bad[0]?.number ?? items[0]!.number);
    setOnly(null);
  }, [judged]);
  const shown = only ? items.filter(({ sign }) => sign === only) : items;
  const item = items.find(({ number }) => number === chosen) ?? items[0]!;
  const answer = fields && !judged.field ? answerOf(fields, items) : null;
  const pieces = fields ? piecesOf(fields, judged.field) : null;
  const signs = SIGNS.filter((sign) => items.some((one) => one.sign === sign));
  const move = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const order = SIGNS.flatMap((sign) => shown.filter((one) => one.sign === sign));
    const next = order[order.findIndex(({ number }) => number === chosen) + step];
    if (!next) return;
    choose(next.number);
    const list = event.currentTarget as HTMLElement;
    requestAnimationFrame(() => list.querySelector<HTMLElement>(`[data-item="${next.number}"]`)?.focus());
  };
  return (
    <div class={`lists${answer ? "" : " noanswer"}${spans ? " traced" : ""}`}>
      <section onKeyDown={move}>
        <div class="bar0">
          <h2>{bad.length ? "What was wrong" : "What was judged"} <span class="light">{bad.length ? `${whole(bad.length)} of ${whole(items.length)}` : whole(items.length)}</span></h2>
          {signs.length > 1 && (
            <span class="seg">
              {signs.map((sign) => <button key={sign} aria-pressed={only === sign} onClick={() => setOnly(only === sign ? null : sign)}>{ITEM_SIGN[sign]} {whole(items.filter((one) => one.sign === sign).length)}</button>)}
              <button aria-pressed={only === null} onClick={() => setOnly(null)}>all {whole(items.length)}</button>
            </span>
          )}
        </div>
        <ItemList key={only} metric={metric} items={shown} chosen={chosen} choose={choose} />
      </section>
      {answer && (
        <section class="stick">
          <h2>{answer.name}</h2>
          <Marked text={answer.text} chosen={chosen} choose={choose} marks={items.flatMap((one): Mark[] => {
            const span = one.text === null ? null : spanOf(answer.text, one.text);
            if (!span || (one.sign === "pass" && one.number !== chosen)) return [];
            return [{ span, number: one.number, look: one.sign, sign: one.sign === "pass" ? "" : `${ITEM_SIGN[one.sign]} ${one.number}`,
              name: `${text(answer.text, span)} ${one.sign === "pass" ? "" : `${ITEM_SIGN[one.sign]} ${one.number}`}: item ${one.number}, ${means(metric, one.verdict)}` }];
          })} />
          {!spans && <p class="soft sm">{foundBy(item.text === null ? null : spanOf(answer.text, item.text), `item ${item.number}`)}</p>}
        </section>
      )}
      {!fields && <p class="note m">{missing}</p>}
      {spans ? <section class="stick">{trace}</section> : pieces && <Pieces {...pieces} item={item} />}
    </div>
  );
}

function text(whole: string, { start, end }: Span): string {
  return whole.slice(start, end);
}

/** How a mark was found: it is no word of the judge. */
function foundBy(span: Span | null, what: string): string {
  if (!span) return `The words of ${what} are not found in this text.`;
  return span.equal ? `Marked by equal words, ${span.equal[0]} of ${span.equal[1]}.` : "";
}

/** The text field that says most of what the items say. */
function answerOf(fields: Record<string, unknown>, items: Item[]): { name: string; text: string } | null {
  const texts = Object.entries(fields).filter((entry): entry is [string, string] => typeof entry[1] === "string" && !["name", "input"].includes(entry[0]));
  const sample = items.slice(0, 20);
  const hits = (text: string) => sample.filter((item) => item.text !== null && spanOf(text, item.text)).length;
  const [best] = texts.map(([name, text]) => ({ name, text, found: hits(text) })).sort((a, b) => b.found - a.found);
  const usual = texts.find(([name]) => name === "actual_output");
  if (best && best.found) return best;
  return usual ? { name: usual[0], text: usual[1] } : null;
}

/** The list of texts that items were held against, or that they are of. */
function piecesOf(fields: Record<string, unknown>, own: string | null): { name: string; pieces: string[]; own: boolean } | null {
  for (const name of own ? [own] : ["retrieval_context", "context"]) {
    const list = fields[name];
    if (Array.isArray(list) && list.length) return { name, pieces: list.map((piece) => (typeof piece === "string" ? piece : plain(piece))), own: own !== null };
  }
  return null;
}

/** The piece that says most of what the reason of the item says, else of the item itself. */
function Pieces({ name, pieces, own, item }: { name: string; pieces: string[]; own: boolean; item: Item }) {
  const [other, setOther] = useState<number | null>(null);
  useEffect(() => setOther(null), [item, pieces]);
  const pieceOf = (i: number) => `${name} (${i + 1} of ${pieces.length})`;
  const cited = pieces.findIndex((_, i) => item.quotes.some(({ piece, places }) => places.length && piece === pieceOf(i)));
  let best: { piece: number; span: Span } | null = null;
  for (const wanted of own || cited >= 0 ? [] : [...quoted(item.reason), item.reason, item.text]) {
    if (!wanted || best) continue;
    pieces.forEach((piece, i) => {
      const span = spanOf(piece, wanted);
      const equal = span && (span.equal ? span.equal[0] / span.equal[1] : 2);
      const known = best && (best.span.equal ? best.span.equal[0] / best.span.equal[1] : 2);
      if (span && equal! > (known ?? 0)) best = { piece: i, span };
    });
  }
  const found = best as { piece: number; span: Span } | null;
  const at = other ?? (own ? item.number - 1 : cited >= 0 ? cited : (found?.piece ?? 0));
  const span = found && at === found.piece ? found.span : null;
  const quotes = marksOf(pieces[at]!, pieceOf(at), item.quotes);
  return (
    <section class="stick">
      <h2>{name} <span class="light">piece {whole(at + 1)} of {whole(pieces.length)}</span></h2>
      <Marked text={pieces[at]!} chosen={0} marks={quotes.length ? quotes : span ? [{ span, number: 0, look: "piece", sign: "", name: "" }] : []} />
      {quotes.length > 0 ? <p class="soft sm">Marked as the judge quoted it.</p> : !own && cited < 0 && <p class="soft sm">{span ? `${foundBy(span, "")} The judge does not say which piece it used.` : found ? "" : "No piece says it in these words."}</p>}
      {pieces.length > 1 && (
        <ol class="pieces">
          {pieces.map((piece, i) => <li key={i}><button aria-pressed={i === at} onClick={() => setOther(i)}><b>{i + 1}</b> <span class="one" dir="auto">{piece}</span></button></li>)}
        </ol>
      )}
    </section>
  );
}

/** What stands between quotation marks. */
function quoted(text: string | null): string[] {
  return [...(text ?? "").matchAll(/[“"]([^”"]{8,})[”"]/g)].map((found) => found[1]!);
}

/** Fields beside those that stand in a view of their own, folded. */
export function OtherFields({ fields, shown }: { fields: Record<string, unknown> | null; shown: string[] }) {
  const rest = Object.entries(fields ?? {}).filter(([name, value]) => value != null && !["name", "type", ...shown].includes(name));
  if (!rest.length) return null;
  return (
    <Fold title={`${many(rest.length, "more field")}: ${rest.map(([name]) => name).join(", ")}`}>
      {rest.map(([name, value]) => <div key={name} class="field"><h3>{name}</h3><Text text={plain(value)} /></div>)}
    </Fold>
  );
}
