// A synthesis: the goldens that were kept, beside the drafts that were dropped, and why.

import { useState } from "preact/hooks";
import type { Draft } from "../data/source.ts";
import { useKeys } from "../parts/keys.ts";
import { dataLine, judged, Lines, Texts, moreLines } from "../parts/lines.tsx";
import { Unfinished, useTitle } from "../parts/screen.tsx";
import { usePage } from "../parts/state.ts";
import { many, percent, titled, whole } from "../parts/words.ts";

const SHOWN = 40; // passages at first, and that are added

export function Goldens({ drafts }: { drafts: Draft[] }) {
  const { source, go } = usePage();
  const { run } = source;
  const [room, setRoom] = useState(SHOWN);
  const kept = drafts.filter((draft) => !draft.cause);
  const causes = counted(drafts.flatMap(({ cause }) => cause ?? []));
  const places = [...new Set(drafts.map((draft) => draft.source))];
  const title = `${many(kept.length, "golden")} kept of ${many(drafts.length, "draft")}`;
  useTitle(title, run.name);
  useKeys({ a: () => go({ state: "all" }), f: () => go({ state: "fail" }) });
  const lines: [string, preact.ComponentChildren][] = [
    ["dropped", causes.length ? causes.map(([cause, count], i) => <>{i > 0 && " · "}{cause} {i ? whole(count) : <b>{whole(count)}</b>}</>) : "nothing"],
    ["judge", judged(run)],
    ["data", dataLine(run)],
    ...moreLines(source),
  ];
  if (drafts.length) lines.unshift(["result", <><b>{whole(kept.length)} kept, {percent(kept.length, drafts.length)}</b> · {whole(drafts.length - kept.length)} dropped, from {many(places.length, "passage")}</>]);
  return (
    <>
      <div class="head full">
        <div>
          <h1>{title}</h1>
          <Lines lines={lines} />
          {!run.finished && <Unfinished />}
          <Texts run={run} />
          <p class="sm every"><button class="link-b" onClick={() => go({ state: "all" })}>Every draft as a row, and its way through the generator</button></p>
        </div>
      </div>
      {places.slice(0, room).map((place) => <Passage key={place} place={place} drafts={drafts.filter((draft) => draft.source === place)} />)}
      {places.length > room && <button class="btn" onClick={() => setRoom(room + SHOWN)}>{many(places.length - room, "more passage")}</button>}
    </>
  );
}

/** Each text with how often it is there, the most frequent first. */
function counted(texts: string[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

/** What came of one passage: kept at the left, dropped at the right. */
function Passage({ place, drafts }: { place: string; drafts: Draft[] }) {
  const kept = drafts.filter(({ cause }) => !cause);
  const dropped = drafts.filter(({ cause }) => cause);
  return (
    <section class="goldens">
      <h2 dir="auto">{place} <span class="light sm">{whole(kept.length)} kept, {whole(dropped.length)} dropped</span></h2>
      <ul aria-label={`kept, ${place}`}>{kept.map((draft) => <Kept key={draft.case} draft={draft} />)}</ul>
      <ul aria-label={`dropped, ${place}`}>{dropped.map((draft) => <Dropped key={draft.case} draft={draft} />)}</ul>
    </section>
  );
}

function Kept({ draft }: { draft: Draft }) {
  return (
    <li>
      <Question draft={draft} />
      {draft.answer && <p dir="auto">{draft.answer}</p>}
      {draft.sentences.map((sentence) => <blockquote key={sentence} class="soft" dir="auto">{sentence}</blockquote>)}
      <p class="soft sm">{draft.kind}</p>
    </li>
  );
}

function Dropped({ draft }: { draft: Draft }) {
  return (
    <li>
      <Question draft={draft} />
      <p dir="auto"><b>{draft.cause}.</b> {draft.why}{draft.repeats && <>It asks for the same as “{draft.repeats}”</>}</p>
      <p class="soft sm">{draft.kind}</p>
    </li>
  );
}

function Question({ draft }: { draft: Draft }) {
  const { go, place } = usePage();
  const open = () => go({ view: "case", case: String(draft.case), more: { ...place.more, under: "" } });
  return (
    <p class="q"><span class={`g ${draft.cause ? "fail" : "pass"}`}>{draft.cause ? "✕" : "✓"}</span>{" "}
      <button class="link-b" onClick={open} dir="auto">{titled(draft)}</button></p>
  );
}
