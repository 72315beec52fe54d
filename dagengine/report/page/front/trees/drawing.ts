// When the page is drawn: answers that come together are drawn together, at the end of the task.

import { options } from "preact";

const EVENTS = ["keydown", "pointerdown", "click", "input", "change"];

/** From now on a drawing waits for the end of the task, or for what a person does next. */
export function drawTogether(): void {
  const waiting: (() => void)[] = [];
  const draw = () => waiting.splice(0).forEach((one) => one());
  const end = new MessageChannel();
  end.port1.onmessage = draw;
  options.debounceRendering = (one) => {
    waiting.push(one);
    if (waiting.length === 1) end.port2.postMessage(null);
  };
  // A key finds the page as the key before it left it.
  for (const event of EVENTS) addEventListener(event, draw, true);
}
