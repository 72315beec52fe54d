// TanStack Virtual over the scrolling window: only the rows in sight stand in the document.

import {
  observeWindowOffset, observeWindowRect, Virtualizer, windowScroll,
} from "@tanstack/virtual-core";
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";

/** Browsers lay out about 33 million pixels: more rows than this cannot be scrolled to. */
export const MOST_ROWS = 500_000;

type Rows = Virtualizer<Window, HTMLElement>;

export function useRows(count: number, height: number, body: RefObject<HTMLElement | null>): Rows {
  const [, redraw] = useState(0);
  const options = (margin: number) => ({
    count: Math.min(count, MOST_ROWS),
    estimateSize: () => height,
    overscan: 10,
    scrollMargin: margin,
    initialRect: { width: innerWidth, height: innerHeight },
    getScrollElement: () => window,
    observeElementRect: observeWindowRect,
    observeElementOffset: observeWindowOffset,
    scrollToFn: windowScroll,
    onChange: () => redraw((n) => n + 1),
  });
  const rows = useMemo(() => new Virtualizer<Window, HTMLElement>(options(0)), []);
  rows.setOptions(options(rows.options.scrollMargin));
  useEffect(() => rows._didMount(), []);
  useEffect(() => rows.measure(), [height]);
  useLayoutEffect(() => {
    const top = body.current ? Math.round(body.current.getBoundingClientRect().top + scrollY) : 0;
    if (top !== rows.options.scrollMargin) {
      rows.setOptions(options(top));
      redraw((n) => n + 1);
    }
    rows._willUpdate();
  });
  return rows;
}
