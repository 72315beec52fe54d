// The distribution of scores: eleven bars, each a button of the filter.

import type { Metric } from "../data/source.ts";
import { many, whole } from "./words.ts";

type Bin = { passed: number; failed: number };

interface Props {
  metric: Metric;
  bins: Bin[];
  height?: number;
  small?: boolean;
  pressed?: (bin: string) => boolean;
  pick?: (bin: string, event: MouseEvent | KeyboardEvent) => void;
}

const WIDTH = 360;

export function Chart({ metric, bins, height = 84, small = false, pressed, pick }: Props) {
  const most = Math.max(1, ...bins.map((bin) => bin.passed + bin.failed));
  const step = WIDTH / bins.length;
  const limit = metric.strict ? 1 : metric.threshold;
  const top = small ? 2 : limit == null ? 18 : 30;
  const shown = bins.map((bin, i) => (
    <Bar key={i} {...{ bin, i, step, height, small }} scale={(height - top) / most}
      pressed={pressed?.(String(i / 10)) ?? false} pick={pick} />
  ));
  return (
    <svg class="chart" viewBox={`0 0 ${WIDTH} ${height + (small ? 2 : 20)}`} width="100%"
      role={pick ? "group" : "img"} aria-label={sentence(metric, bins)}>
      {shown}
      {limit != null && (
        <line class="limit" x1={limit * 10 * step} x2={limit * 10 * step} y1={0} y2={height + 4} />
      )}
      {limit != null && !small && (
        <text class="hint" y={10} {...(limit > 0.8 ? { x: limit * 10 * step - 5, "text-anchor": "end" } : { x: limit * 10 * step + 5 })}>
          passes →
        </text>
      )}
      {!small && [0, 0.5, 1].map((tick) => (
        <text key={tick} class="hint" x={(tick * 10 + 0.5) * step} y={height + 16} text-anchor="middle">{tick}</text>
      ))}
    </svg>
  );
}

/** The hatching of failed bars, once for all charts of the page. */
export function Hatch() {
  return (
    <svg class="vh" aria-hidden="true">
      <defs>
        <pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="1.5" height="5" class="hatch" />
        </pattern>
      </defs>
    </svg>
  );
}

interface BarProps {
  bin: Bin;
  i: number;
  step: number;
  height: number;
  small: boolean;
  scale: number;
  pressed: boolean;
  pick: Props["pick"];
}

function Bar({ bin, i, step, height, small, scale, pressed, pick }: BarProps) {
  const count = bin.passed + bin.failed;
  const x = i * step + 2;
  const tall = count ? Math.max(3, count * scale) : 1;
  const failed = count ? (tall * bin.failed) / count : 0;
  const box = { x, width: step - 4 };
  const parts = (
    <>
      <rect {...box} y={height - tall} height={Math.max(0, tall - failed)} class={count ? "bar" : "nobar"} />
      {failed > 0 && <rect {...box} y={height - failed} height={failed} class="bar x" />}
      {failed > 0 && <rect {...box} y={height - failed} height={failed} fill="url(#hatch)" />}
      {count > 0 && !small && (
        <text class="count" x={x + step / 2 - 2} y={height - tall - 4} text-anchor="middle">{whole(count)}</text>
      )}
    </>
  );
  if (!pick || !count) return parts;
  const key = String(i / 10);
  const choose = (event: MouseEvent | KeyboardEvent) => pick(key, event);
  return (
    <g role="button" tabindex={0} aria-pressed={pressed} class={pressed ? "on" : ""}
      aria-label={`${whole(count)} cases with a score of about ${key}, ${whole(bin.failed)} failed`}
      onClick={choose} onKeyDown={(event) => pressing(event) && choose(event)}>
      <rect {...box} y={0} height={height} class="hit" />
      {parts}
    </g>
  );
}

/** Whether a key presses a button; its default is then prevented. */
export function pressing(event: KeyboardEvent): boolean {
  if (event.key !== "Enter" && event.key !== " ") return false;
  event.preventDefault();
  event.stopPropagation();
  return true;
}

function sentence(metric: Metric, bins: Bin[]): string {
  const said = bins.flatMap((bin, i) => (bin.passed + bin.failed ? [`${bin.passed + bin.failed} at ${i / 10}`] : []));
  const total = bins.reduce((sum, bin) => sum + bin.passed + bin.failed, 0);
  return `Distribution of the scores of ${metric.name}: ${many(total, "case")}${said.length ? `, ${said.join(", ")}` : ""}`;
}
