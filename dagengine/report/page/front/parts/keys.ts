// Keys: letters work outside of input fields and without Ctrl, Alt or Cmd, and can be switched off.

import { useLayoutEffect, useRef } from "preact/hooks";

type Keys = Record<string, (event: KeyboardEvent) => void>;

/** Whether letters are keys; remembered nowhere, so that a shared link behaves alike. */
export const letters = { on: true };

/** Handlers by key for as long as a part is shown; `g c` is written as `g c`. */
export function useKeys(keys: Keys): void {
  const latest = useRef(keys);
  latest.current = keys;
  // Before anything is seen: a key that is pressed at once finds its handler.
  useLayoutEffect(() => {
    let before = "";
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
      if (event.key !== "Escape" && typing(event.target)) return;
      if (event.key.length === 1 && !letters.on) return;
      const pair = latest.current[`${before} ${event.key}`];
      const handler = pair ?? (before ? undefined : latest.current[event.key]);
      before = event.key === "g" && !pair ? "g" : "";
      handler?.(event);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.matches("input, textarea, select") || target.isContentEditable);
}
