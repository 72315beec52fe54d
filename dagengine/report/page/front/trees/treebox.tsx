// The tree in its place: as a picture, folded or whole, or as an outline.

import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Box, Counts, Layout, Metric, Part } from "../data/source.ts";
import { useKeys } from "../parts/keys.ts";
import { chosenNode } from "../parts/screen.tsx";
import { usePage, usePick, useWidth } from "../parts/state.ts";
import { many, whole } from "../parts/words.ts";
import { Outline } from "./outline.tsx";
import { Legend, Tree } from "./tree.tsx";

interface Props {
  metric: Metric;
  counts: Counts;
  all: Counts;
  filtered: boolean;
  title?: string;
  /** What a click does; by default it filters. */
  choose?: (part: Part, event: { shiftKey: boolean; altKey: boolean }) => void;
}

const ZOOMS = [1, 1.25, 1.5, 2];
const BESIDE = 548; // pixels beside the list of ends

/** Whether the picture of a metric takes the full width: beside the list it would hide where most fail. */
export function isWide(metric: Metric): boolean {
  return (metric.layouts[1] ?? metric.layouts[0])?.width! > BESIDE - 4;
}

export function TreeBox({ metric, counts, all, filtered, title, choose }: Props) {
  const { place, go, filter } = usePage();
  const usual = usePick();
  const pick = choose ?? usual;
  const phone = useWidth("(max-width: 640px)");
  const [opened, setOpened] = useState<number | "all" | null>(null);
  const [entered, enter] = useState<number | null>(null);
  const [zoom, setZoom] = useState(1);
  const [full, setFull] = useState(false);
  const scroller = useRef<HTMLDivElement>(null);
  const drag = useRef<{ x: number; y: number } | null>(null);
  const outline = phone || place.outline || !metric.layouts.length;
  const folds = metric.layouts.length > 1;
  const layout = (entered === null ? null : metric.nested[entered]) ?? metric.layouts[!folds || opened === "all" ? 0 : opened === null ? 1 : opened + 2] ?? metric.layouts[0];
  const step = (by: number) => setZoom(ZOOMS[Math.max(0, Math.min(ZOOMS.length - 1, ZOOMS.indexOf(zoom) + by))]!);
  const unfold = (stub: number | "all" | null) => { enter(null); setOpened(stub); };
  const fit = () => { setZoom(1); unfold(null); };
  useKeys({
    o: () => go({ outline: !place.outline }, "replace"),
    t: (event) => {
      event.preventDefault();
      document.querySelector<HTMLElement>(".treebox [role=button], .treebox .outline button")?.focus();
    },
    "+": () => unfold("all"),
    "-": fit,
    "0": fit,
    z: () => setFull(!full),
    ...(full ? { Escape: (event: KeyboardEvent) => { event.preventDefault(); setFull(false); } } : {}),
  });
  const chosen = filter.parts.findLast(({ kind }) => kind === "e" || kind === "n");
  useLayoutEffect(() => {
    // What the address names stands in the picture: where it is folded, its group opens.
    const node = chosenNode(metric, filter.parts);
    if (node === null || !layout || layout.nodes[node] || outline) return;
    const { inside } = metric.nodes[node]!;
    if (inside !== null) return enter(inside);
    const folded = metric.layouts[1];
    if (!folded || opened !== null || layout.frames.some((frame) => frame.node === node)) return;
    const stub = folded.stubs.findIndex(({ nodes }) => nodes.includes(node));
    unfold(stub >= 0 && metric.layouts[stub + 2] ? stub : "all");
  }, [chosen?.key, metric]);
  useLayoutEffect(() => {
    // The chosen part comes into sight; else the first decision of a picture that is wider than its box.
    const box = scroller.current;
    if (!box) return;
    const mark = box.querySelector("[aria-pressed=true]") ?? box.querySelector(".frame");
    if (mark) {
      const [frame, part] = [box.getBoundingClientRect(), mark.getBoundingClientRect()];
      box.scrollLeft += part.left + part.width / 2 - frame.left - box.clientWidth / 2;
      box.scrollTop += part.top + part.height / 2 - frame.top - box.clientHeight / 2;
      return;
    }
    const decides = metric.answers.find((answer) => layout?.nodes[answer.node]);
    const root = decides ? layout!.nodes[decides.node] : layout?.nodes.find(Boolean);
    if (root) box.scrollLeft = (root[0] + root[2] / 2) * zoom - box.clientWidth / 2;
  }, [layout, outline, zoom, full, chosen?.key]);
  const shared = { metric, counts, parts: filtered ? filter.parts : [], cases: all.cases, choose: pick };
  const own = (node: number) => metric.nodes[node]!.inside === null;
  const drawn = layout ? layout.nodes.filter((box, node) => box && own(node)).length + layout.frames.filter(({ node }) => own(node)).length : 0;
  const top = metric.layouts[0]?.nodes.filter(Boolean).length ?? 0;
  const never = all.nodes.filter((node, i) => metric.layouts[0]?.nodes[i] && !node.cases && !Object.keys(node.broken).length).length;
  return (
    <section class={`treebox${full && !outline ? " full" : ""}`}>
      <div class="bar0">
        <h2>{title ?? (filtered ? `Where these ${whole(counts.cases)} went` : "Where the cases went")}</h2>
        {metric.layouts.length > 0 && !phone && (
          <span class="tools">
            <span class="seg">
              <button aria-pressed={!place.outline} onClick={() => go({ outline: false }, "replace")}>Picture</button>
              <button aria-pressed={place.outline} onClick={() => go({ outline: true }, "replace")}>Outline</button>
            </span>
            {!outline && (
              <>
                <span class="seg">
                  <button aria-label="− zoom out" disabled={zoom === 1} onClick={() => step(-1)}>−</button>
                  <span role="status" class="zoom">{100 * zoom} %</span>
                  <button aria-label="+ zoom in" disabled={zoom === 2} onClick={() => step(1)}>+</button>
                </span>
                {(zoom > 1 || opened !== null || entered !== null) && <span class="seg"><button onClick={fit}>Fit</button></span>}
                <span class="seg"><button aria-pressed={full} title="full screen" onClick={() => setFull(!full)}>Full <kbd>z</kbd></button></span>
              </>
            )}
          </span>
        )}
      </div>
      {outline || !layout ? <Outline {...shared} /> : (
        <>
          <div class="scroller" ref={scroller}
            onWheel={(event) => { if (event.ctrlKey) { event.preventDefault(); step(event.deltaY < 0 ? 1 : -1); } }}
            onPointerDown={(event) => { drag.current = event.button ? null : { x: event.clientX, y: event.clientY }; }}
            onPointerMove={(event) => {
              const from = drag.current;
              if (!from || !event.buttons) return;
              event.currentTarget.scrollLeft -= event.clientX - from.x;
              event.currentTarget.scrollTop -= event.clientY - from.y;
              drag.current = { x: event.clientX, y: event.clientY };
            }}>
            <Tree {...shared} layout={layout} zoom={zoom} ghost={filtered ? all : null} enter={enter} unfold={(stub) => unfold(opened === null && metric.layouts[stub + 2] ? stub : "all")} />
          </div>
          <Overview layout={layout} counts={counts} zoom={zoom} scroller={scroller} full={full} />
          <Legend metric={metric} counts={counts} filtered={filtered} cases={all.cases} />
          {(folds || never > 0) && (
            <p class="soft sm folds">
              {drawn < top ? `${whole(drawn)} of ${many(top, "node")} are drawn${layout.stubs.length ? `, ${whole(new Set(layout.stubs.flatMap(({ nodes }) => nodes)).size)} folded in ${many(layout.stubs.length, "group")}` : ""}${drawnFailures(layout, all)}` : `All ${whole(top)} nodes are drawn`}{never > 0 && `; ${whole(never)} ${never === 1 ? "was" : "were"} never taken`}.{" "}
              {folds && (opened === "all"
                ? <button class="link-b" onClick={fit}><kbd>-</kbd> fold to fit</button>
                : <button class="link-b" onClick={() => unfold("all")}><kbd>+</kbd> unfold all</button>)}
            </p>
          )}
        </>
      )}
    </section>
  );
}

const MAP = [176, 32] as const; // width and least height in pixels

/** Where the part in sight is in a picture that is larger than its box; a click goes there. */
function Overview({ layout, counts, zoom, scroller, full }: { layout: Layout; counts: Counts; zoom: number; scroller: RefObject<HTMLDivElement | null>; full: boolean }) {
  const [sight, setSight] = useState<Box | null>(null);
  useLayoutEffect(() => {
    const box = scroller.current!;
    const look = () => setSight(
      box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1
        ? [box.scrollLeft / zoom, box.scrollTop / zoom, box.clientWidth / zoom, box.clientHeight / zoom] : null,
    );
    look();
    box.addEventListener("scroll", look);
    addEventListener("resize", look);
    return () => {
      box.removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [layout, zoom, full]);
  if (!sight) return null;
  const move = (event: PointerEvent) => {
    const [map, box] = [(event.currentTarget as Element).getBoundingClientRect(), scroller.current!];
    const [across, down] = [(event.clientX - map.left) / map.width, (event.clientY - map.top) / map.height];
    box.scrollTo(across * box.scrollWidth - box.clientWidth / 2, down * box.scrollHeight - box.clientHeight / 2);
  };
  const [x, y, width, height] = sight;
  return (
    <svg class="map" aria-hidden="true" width={MAP[0]} height={Math.max(MAP[1], Math.min(MAP[0], (MAP[0] * layout.height) / layout.width))} preserveAspectRatio="none" viewBox={`0 0 ${layout.width} ${layout.height}`}
      onPointerDown={move} onPointerMove={(event) => event.buttons && move(event)}>
      {layout.nodes.map((box, node) => box && <rect key={node} x={box[0]} y={box[1]} width={box[2]} height={box[3]} class={counts.nodes[node]!.failed ? "x" : ""} />)}
      <rect class="sight" x={x} y={y} width={width} height={height} />
    </svg>
  );
}

/** How many of the failures end at what is drawn: what leads into a group ends inside. */
function drawnFailures(layout: Layout, all: Counts): string {
  if (!all.failed) return "";
  const hidden = new Set(layout.stubs.flatMap(({ by }) => by));
  const inside = [...hidden].reduce((sum, answer) => sum + all.answers[answer]!.failed, 0);
  return `. The drawn ends hold ${whole(Math.max(0, all.failed - inside))} of ${many(all.failed, "failure")}`;
}
