// Judged texts and questions: text nodes only, whatever they hold.

import type { ComponentChildren } from "preact";

/** Text with the names between backquotes in the font of code. */
export function Code({ text }: { text: string }) {
  const parts = text.split(/`([^`\n]+)`/);
  return <>{parts.map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>;
}

/** A judged text in its box; `read` underlines what the chosen step read. */
export function Judged({ text, read = false }: { text: string; read?: boolean }) {
  return <div class="txt" dir="auto">{read ? <mark>{text}</mark> : text}</div>;
}

/** Any value as text: texts as they are, everything else as JSON. */
export function plain(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return value ? "True" : "False";
  if (value === null || value === undefined) return "";
  return typeof value === "number" ? String(value) : JSON.stringify(value, null, 2);
}

/** A folded part; open where `open` says so, and on paper. */
export function Fold({ title, open = false, children }: { title: ComponentChildren; open?: boolean; children: ComponentChildren }) {
  return (
    <details open={open}>
      <summary>{title}</summary>
      {children}
    </details>
  );
}
