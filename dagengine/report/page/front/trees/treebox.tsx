// The tree in its place: as a picture, folded or whole, or as an outline.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Counts, Metric } from "../data/source.ts";
import { useKeys } from "../parts/keys.ts";
import { usePage, usePick, useWidth } from "../parts/state.ts";
import { whole } from "../parts/words.ts";
import { Outline } from "./outline.tsx";
import { Legend, Tree } from "./tree.tsx";

interface Props {
  metric: Metric;
  counts: Counts;
  all: Counts;
  filtered: boolean;
  title?: string;
}

export function TreeBox({ metric, counts, all, filtered, title }: Props) {
  const { place, go } = usePage();
  const pick = usePick();
  const phone = useWidth("(max-width: 640px)");
  const [opened, setOpened] = useState<number | "all" | null>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const outline = phone || place.outline || !metric.layouts.length;
  const folds = metric.layouts.length > 1;
  const layout = metric.layouts[!folds || opened === "all" ? 0 : opened === null ? 1 : opened + 2];
  useKeys({
    o: () => go({ outline: !place.outline }, "replace"),
    t: (event) => {
      event.preventDefault();
      document.querySelector<HTMLElement>(".treebox [role=button], .treebox .outline button")?.focus();
    },
    "+": () => setOpened("all"),
    "-": () => setOpened(null),
  });
  useLayoutEffect(() => {
    // A wide picture opens at its first decision.
    const box = scroller.current;
    const decides = metric.answers.find((answer) => layout?.nodes[answer.node]);
    const root = decides ? layout!.nodes[decides.node] : layout?.nodes.find(Boolean);
    if (box && root) box.scrollLeft = root[0] + root[2] / 2 - box.clientWidth / 2;
  }, [layout, outline]);
  const shared = { metric, counts, parts: filtered ? usePage().filter.parts : [], cases: all.cases, choose: pick };
  const drawn = layout ? layout.nodes.filter(Boolean).length : 0;
  const never = all.nodes.filter((node) => !node.cases && !Object.keys(node.broken).length).length;
  return (
    <section class="treebox">
      <div class="bar0">
        <h2>{title ?? (filtered ? `Where these ${whole(counts.cases)} went` : "Where the cases went")}</h2>
        {metric.layouts.length > 0 && !phone && (
          <span class="seg">
            <button aria-pressed={!place.outline} onClick={() => go({ outline: false }, "replace")}>Picture</button>
            <button aria-pressed={place.outline} onClick={() => go({ outline: true }, "replace")}>Outline</button>
          </span>
        )}
      </div>
      {outline || !layout ? <Outline {...shared} /> : (
        <>
          <div class="scroller" ref={scroller}>
            <Tree {...shared} layout={layout} ghost={filtered ? all : null} unfold={(stub) => setOpened(opened === null ? stub : "all")} />
          </div>
          <Legend filtered={filtered} cases={all.cases} />
          {folds && (
            <p class="soft sm folds">
              {whole(drawn)} of {whole(metric.nodes.length)} nodes are drawn{never > 0 && `; ${whole(never)} were never reached`}.{" "}
              {opened === "all"
                ? <button class="link-b" onClick={() => setOpened(null)}><kbd>-</kbd> fold</button>
                : <button class="link-b" onClick={() => setOpened("all")}><kbd>+</kbd> unfold all</button>}
            </p>
          )}
        </>
      )}
    </section>
  );
}
