// What several screens have: the counts of the filter, the node that is chosen, the window's title, what is announced.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Counts, End, Filter, Metric, Part } from "../data/source.ts";
import { useAnswer, usePage } from "./state.ts";
import { whole } from "./words.ts";

/** Counts of a filter (that of the page) and of the whole run. */
export function useCounts(of?: Filter): { counts: Counts | null; whole: Counts | null; filtered: boolean } {
  const { source, filter: shown } = usePage();
  const key = JSON.stringify(of ?? shown);
  const filter = useMemo(() => of ?? shown, [key]);
  const filtered = filter.parts.length > 0 || filter.text !== "";
  const unfiltered = { metric: filter.metric, parts: [], text: "" };
  const all = useAnswer(() => source.counts(unfiltered), [source, filter.metric]);
  const counts = useAnswer(() => source.counts(filter), [source, filter]);
  return { counts: filtered ? counts : all, whole: all, filtered };
}

/** Where the cases of a filter ended, with reasons as soon as they are read. */
export function useEnds(of?: Filter): End[] {
  const { source, filter: shown } = usePage();
  const key = JSON.stringify(of ?? shown);
  const filter = useMemo(() => of ?? shown, [key]);
  const ends = useAnswer(() => source.ends(filter), [source, filter]);
  const told = useAnswer(async () => (ends ? { ends, whole: await source.whys(ends, filter.metric) } : null), [source, ends]);
  return (told?.ends === ends ? told?.whole : undefined) ?? ends ?? [];
}

/** The node whose panel is shown: the one chosen last, or that of the edge chosen last. */
export function chosenNode(metric: Metric, parts: Part[]): number | null {
  const last = parts.findLast((part) => part.kind === "e" || part.kind === "n");
  if (!last) return null;
  const node = metric.nodes.findIndex(({ name }) => (last.kind === "n" ? name === last.key : last.key.startsWith(`${name}:`)));
  return node < 0 ? null : node;
}

/** The name of the window: the run, and what the screen shows of it. */
export function useTitle(title: string, run: string): void {
  useEffect(() => {
    if (title) document.title = `${run}: ${title}`;
  }, [title, run]);
}

/** Tells a screen reader what a filter left, once the counting has settled. */
export function Announce({ text }: { text: string }) {
  const [said, setSaid] = useState("");
  const first = useRef(true);
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    const soon = setTimeout(() => setSaid(text), 300);
    return () => clearTimeout(soon);
  }, [text]);
  return <p class="vh" aria-live="polite">{said}</p>;
}

/** How far a run came that has not ended. */
export function Unfinished() {
  const { run } = usePage().source;
  const share = run.planned ? (100 * run.cases) / run.planned : null;
  return (
    <>
      {share !== null && (
        <>
          <div class="prog" role="progressbar" aria-label="cases judged" aria-valuenow={run.cases} aria-valuemax={run.planned!}>
            <div style={{ width: `${share}%` }} />
          </div>
          <p class="soft sm">{whole(run.cases)} of {whole(run.planned!)} rows · {whole(run.planned! - run.cases)} never asked</p>
        </>
      )}
      <p class="soft">Figures are of the {whole(run.cases)}.</p>
      {run.command && <code class="cmd">{run.command}</code>}
      {run.command?.includes("--store") && <p class="soft sm">If you repeat this command, only questions without a stored answer are asked.</p>}
    </>
  );
}
