// What changed: its cause in words; two texts word by word.

import type { Cause } from "../data/server.ts";

export const CAUSE: Record<Cause, string> = {
  definition: "definition changed", evidence: "evidence changed", judge: "judge changed",
  same: "same question, another answer",
};

interface Piece {
  text: string;
  how: "same" | "gone" | "new";
}

const MOST = 1000; // words; longer texts are shown whole, before and after

/** The longest common words of both texts stay, all else is gone or new. */
export function changedWords(old: string, now: string): Piece[] {
  const [before, after] = [pieces(old), pieces(now)];
  if (before.length > MOST || after.length > MOST) return [{ text: old, how: "gone" }, { text: now, how: "new" }];
  const table = lengths(before, after);
  const found: Piece[] = [];
  let [i, j] = [0, 0];
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) add(found, before[i++]!, "same"), j++;
    else if (j >= after.length || (i < before.length && table[i + 1]![j]! >= table[i]![j + 1]!)) add(found, before[i++]!, "gone");
    else add(found, after[j++]!, "new");
  }
  return found;
}

/** Words, each with the blanks behind it. */
function pieces(text: string): string[] {
  return text.match(/\s*\S+\s*|\s+$/g) ?? [];
}

function lengths(before: string[], after: string[]): number[][] {
  const table = Array.from({ length: before.length + 1 }, () => new Array<number>(after.length + 1).fill(0));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      table[i]![j] = before[i] === after[j] ? table[i + 1]![j + 1]! + 1 : Math.max(table[i + 1]![j]!, table[i]![j + 1]!);
    }
  }
  return table;
}

function add(found: Piece[], text: string, how: Piece["how"]): void {
  const last = found.at(-1);
  if (last?.how === how) last.text += text;
  else found.push({ text, how });
}
