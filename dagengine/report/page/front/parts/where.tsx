// Where they failed: ends by count, each with the reason of its first case.

import { useState } from "preact/hooks";
import type { End, Part } from "../data/source.ts";
import { whole, many } from "./words.ts";

const SHOWN = 8;

interface Props {
  ends: End[];
  parts: Part[];
  /** The metric, where the page has several. */
  of?: string;
  choose: (part: Part, event: MouseEvent | KeyboardEvent) => void;
}

export function WhereFailed({ ends, parts, of, choose }: Props) {
  const [all, setAll] = useState(false);
  const has = (state: End["state"]) => ends.some((end) => end.state === state);
  const rest = all ? [] : ends.slice(SHOWN);
  const shown = all ? ends : ends.slice(0, SHOWN);
  if (!ends.length) return null;
  return (
    <section class="wsec">
      <h2>{of ?? (!has("fail") ? "Where there is no score" : has("none") ? "Where they failed, or have no score" : "Where they failed")}{of && <span class="light"> · {has("fail") ? "where it failed" : "where it has no score"}</span>}</h2>
      <ul class="where">
        {shown.map((end) => {
          const part: Part = { kind: "end", key: end.key, not: false };
          const mine = parts.some((p) => p.kind === "end" && p.key === end.key);
          return (
            <li key={end.key}>
              <button aria-pressed={mine} onClick={(event) => choose(part, event)}>
                <span class={`big ${end.state}`}>{whole(end.cases)}</span>
                <span class="end"><b>{end.label}</b></span>
                <span class="why">{end.why}</span>
              </button>
            </li>
          );
        })}
        {rest.length > 0 && (
          <li>
            <button onClick={() => setAll(true)}>
              <span />
              <span class="link">{many(rest.length, "more end")}, {many(rest.reduce((n, e) => n + e.cases, 0), "case")}</span>
            </button>
          </li>
        )}
      </ul>
    </section>
  );
}
