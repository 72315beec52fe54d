// The screens by the name that the address has for them. See README.md on how to add one.

import type { ComponentType } from "preact";
import type { Source } from "../data/engine.ts";
import { CaseScreen } from "./case.tsx";
import { Cases } from "./cases.tsx";
import { Compare } from "./compare.tsx";
import { Label } from "./label.tsx";
import { Home } from "./runs.tsx";

interface Screen {
  /** `v=` in the address, and the second key after `g`: its first letter. */
  view: string;
  /** The word in the bar at the top; without one the screen is reached from others. */
  tab?: string;
  /** Whether a source can show it at all. */
  needs?: (source: Source) => boolean;
  show: ComponentType;
}

export const SCREENS: Screen[] = [
  { view: "runs", tab: "Runs", needs: (source) => source.server !== null, show: Home },
  { view: "cases", tab: "Cases", show: Cases },
  { view: "case", show: CaseScreen },
  { view: "diff", tab: "Compare", needs: (source) => source.server !== null, show: Compare },
  { view: "label", tab: "Label", needs: (source) => source.server !== null, show: Label },
];
