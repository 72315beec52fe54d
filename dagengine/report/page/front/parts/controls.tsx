// The controls above and below a table: states, the parts of the filter, columns, the data set.

import { useState } from "preact/hooks";
import { arenaOf } from "../data/contest.ts";
import { MOST_LINES } from "../data/engine.ts";
import { answerKey } from "../data/names.ts";
import type { Chosen, Counts, Filter, Metric, Part } from "../data/source.ts";
import { isMany, usePage } from "./state.ts";
import { useKeys } from "./keys.ts";
import { many, whole } from "./words.ts";

export function Chips({ counts, chosen }: { counts: Counts; chosen: Chosen }) {
  const { go } = usePage();
  const scored = counts.plain === 0;
  const states: [Chosen, string, number][] = [
    ["fail", "✕ Failed", counts.failed],
    ["none", "⊘ No score", counts.none],
    ["pass", "✓ Passed", counts.passed],
    ["all", "All", counts.cases],
    ["unsure", "Unsure", counts.unsure],
  ];
  const shown = states.filter(([state, , count]) => count > 0 && (scored || state !== "pass"));
  return <Choices of={shown} chosen={chosen} choose={(state) => go({ state })} />;
}

export function Choices({ of, chosen, choose }: { of: [Chosen, string, number][]; chosen: Chosen; choose: (state: Chosen) => void }) {
  return (
    <p class="chips">
      {of.map(([state, word, count]) => (
        <button key={state} class="chip0" aria-pressed={state === chosen} onClick={() => choose(state)}>
          {word} {whole(count)}
        </button>
      ))}
    </p>
  );
}

/** The parts of the filter; a click takes one out. */
export function Parts() {
  const { filter, go, source } = usePage();
  const [said, setSaid] = useState("");
  const { parts, text } = filter;
  const command = commandOf(filter, source.run.folder, source.run.metrics[filter.metric]!, isMany(source));
  const copy = (words: string) => void navigator.clipboard.writeText(words).then(() => setSaid("copied"), () => setSaid(words));
  return (
    <>
      <p class="chips parts">
        {parts.map((part) => (
          <button key={`${part.kind}${part.key}${part.not}`} class="chip0 on" aria-label={`${named(part)}: remove from the filter`}
            onClick={() => go({ parts: parts.filter((p) => p !== part) })}>
            {named(part)} <span aria-hidden="true">✕</span>
          </button>
        ))}
        {text && <button class="chip0 on" aria-label={`“${text}”: remove from the filter`} onClick={() => go({ text: "" })}>“{text}” <span aria-hidden="true">✕</span></button>}
        <button class="btn quiet" onClick={() => go({ parts: [], text: "" })}>Clear all <kbd>Esc</kbd></button>
        {command !== null && <button class="btn quiet" onClick={() => copy(command)}>Copy as command</button>}
        <span class="soft sm" role="status">{said}</span>
      </p>
      <p class="soft sm noprint k">Shift-click another edge to add it, Alt-click to exclude it</p>
    </>
  );
}

function named({ kind, key, not }: Part): string {
  const name = kind === "e" ? key.replace(":", " → ") : kind === "b" ? `score about ${key}` : key;
  return not ? `not ${name}` : name;
}

/** The command that shows the same cases in a terminal; null where it has no word for a part. */
function commandOf({ parts, text }: Filter, folder: string, metric: Metric, several: boolean): string | null {
  const quoted = (value: string) => (/^[\w./=-]+$/.test(value) ? value : `'${value.replaceAll("'", `'\\''`)}'`);
  const words = [`dagengine show ${quoted(folder)}`];
  if (several) words.push(`--metric ${quoted(metric.name)}`);
  for (const { kind, key, not } of parts) {
    const answer = kind === "e" ? metric.answers.findIndex((_, i) => answerKey(metric, i) === key) : -1;
    const { node, verdict } = metric.answers[answer] ?? { node: -1, verdict: "" };
    const at = kind === "n" ? key : metric.nodes[node] && `${metric.nodes[node].name}=${verdict}`;
    if (!at) return null;
    words.push(`--${not ? "not-at" : "at"} ${quoted(at)}`);
  }
  if (text) words.push(`--text ${quoted(text)}`);
  return words.join(" ");
}

const MORE: [string, string][] = [
  ["output", "answer"], ["tags", "tags"], ["path", "path"], ["split", "votes split"],
  ["scores", "more scores"], ["questions", "questions"], ["tokens", "tokens"], ["cost", "money"], ["time", "time"], ["label", "label"], ["data", "place in the data"],
];

/** The menu of columns (key `c`). */
export function Columns() {
  const { place, go, source } = usePage();
  const extra = (place.more.columns ?? "").split(",").filter(Boolean);
  const voted = source.run.metrics.some(({ nodes }) => nodes.some(({ votes }) => votes > 1));
  const fit = (id: string) => (id !== "split" || voted) && (id !== "scores" || source.run.metrics.length > 3);
  const toggle = (id: string) => {
    const next = extra.includes(id) ? extra.filter((x) => x !== id) : [...extra, id];
    go({ more: { ...place.more, columns: next.join(",") || "none" } }, "replace");
  };
  return (
    <p class="chips" role="group" aria-label="Columns">
      {MORE.filter(([id]) => fit(id)).map(([id, word]) => (
        <button key={id} class="chip0" aria-pressed={extra.includes(id)} onClick={() => toggle(id)}>{word}</button>
      ))}
    </p>
  );
}

export function Footer({ total, chosen }: { total: number; chosen: Chosen }) {
  const { source, filter, place, go } = usePage();
  const [said, setSaid] = useState("");
  const open = "columns" in place.more;
  const columns = () => {
    const { columns: _, ...rest } = place.more;
    go({ more: open ? rest : { ...rest, columns: "none" } }, "replace");
  };
  useKeys({ c: columns });
  const save = async () => {
    const lines = await source.lines(filter, chosen);
    if (lines === null) setSaid(total > MOST_LINES ? `at most ${whole(MOST_LINES)} can be saved` : "not all of their texts are in this file");
    else download(lines, "cases.jsonl");
  };
  return (
    <div class="foot">
      <span>{many(total, "case")}</span>
      <span class="k"><kbd>j</kbd> <kbd>k</kbd> move</span>
      <span class="k"><kbd>Enter</kbd> open</span>
      {!isMany(source) && !arenaOf(source.run.metrics[filter.metric]!) && <span class="k"><kbd>t</kbd> tree</span>}
      <button class="link-b" aria-pressed={open} onClick={columns}><kbd>c</kbd> columns</button>
      {total > 0 && source.run.texts !== "none" && (
        <button class="link-b" onClick={() => void save()}>Save {total === 1 ? "this one" : `these ${whole(total)}`} as a data set</button>
      )}
      <span role="status">{said}</span>
    </div>
  );
}

function download(text: string, name: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "application/jsonl" }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  URL.revokeObjectURL(url);
}
