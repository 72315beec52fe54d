// Day after day: what passed of the traces that began on it, by stratum, and the alarms about them.

import type { Alarm, DayGroup, Part } from "../data/source.ts";
import { weighted } from "../data/statistics.ts";
import { pressing } from "./chart.tsx";
import { useAnswer, usePage, useWidth } from "./state.ts";
import { Fold } from "./texts.tsx";
import { many, score, whole } from "./words.ts";

const DRAWN = 92; // days, the latest
const STRATA = 8; // that can be chosen
const ALARMS = 5; // that are told, the latest
const HIGH = 110;
const DAY = 86_400_000; // milliseconds

interface Day {
  day: string;
  judged: number;
  none: number;
  /** Mean, and both ends of its interval; null without a score. */
  rate: [number, number, number] | null;
}

export function Days({ metric }: { metric: number }) {
  const { source, filter, go } = usePage();
  const { run } = source;
  // Its own parts choose among what is drawn.
  const others = filter.parts.filter(({ kind }) => kind !== "day" && kind !== "stratum");
  const groups = useAnswer(async () => (run.days > 1 ? await source.days({ ...filter, metric, parts: others }) : []), [source, filter, metric]);
  if (!groups?.length) return null;
  const about = run.metrics[metric]!;
  const passes = groups.some(({ passed, failed }) => passed + failed > 0);
  const chosen = (kind: Part["kind"]) => filter.parts.filter((part) => part.kind === kind);
  const wanted = ({ stratum }: DayGroup) => chosen("stratum").every(({ key, not }) => (stratum === key) !== not);
  const kept = groups.filter(wanted);
  const days = [...new Set(kept.map(({ day }) => day))].sort().map((day) => dayOf(day, kept.filter((group) => group.day === day), passes));
  const drawn = days.filter(({ day }) => Date.parse(days.at(-1)!.day) - Date.parse(day) < DRAWN * DAY);
  const strata = [...new Set(groups.flatMap(({ stratum }) => (stratum === null ? [] : [stratum])))];
  const toggle = (part: Part) => {
    const rest = filter.parts.filter(({ kind }) => kind !== part.kind);
    const mine = chosen(part.kind).some(({ key }) => key === part.key);
    go({ parts: mine ? rest : [...rest, part], view: "cases", case: null });
  };
  const choose = (day: string) => toggle({ kind: "day", key: day, not: false });
  const pressed = chosen("day").map(({ key }) => key);
  const alarms = run.alarms.filter((alarm) => alarm.metric === about.name);
  const uneven = kept.some(({ probability }) => probability !== kept[0]!.probability);
  return (
    <section class="days">
      <h2>{passes ? "Pass rate" : "Mean score"}, day after day <span class="light sm">{run.metrics.length > 1 && `${about.name} · `}bar: 95 % interval{uneven && " · every case counts 1 / its probability to be judged"}{alarms.length > 0 && " · ▲ alarm"}</span></h2>
      {strata.length > 1 && (
        <p class="chips" role="group" aria-label="Strata">
          {strata.slice(0, STRATA).map((stratum) => (
            <button key={stratum} class="chip0" aria-pressed={chosen("stratum").some(({ key }) => key === stratum)} onClick={() => toggle({ kind: "stratum", key: stratum, not: false })}>
              {stratum} {whole(groups.reduce((sum, group) => sum + (group.stratum === stratum ? group.cases : 0), 0))}
            </button>
          ))}
          {strata.length > STRATA && <span class="soft sm">{many(strata.length - STRATA, "more stratum", "more strata")}</span>}
        </p>
      )}
      {drawn.length > 0 && <Drawing days={drawn} alarms={alarms} passes={passes} pressed={pressed} choose={choose} />}
      {drawn.length < days.length && <p class="soft sm">{many(days.length - drawn.length, "earlier day")}: in the table</p>}
      {alarms.slice(-ALARMS).map((alarm) => <p key={`${alarm.row} ${alarm.group}`} class="sm"><b class="fail">▲ {alarm.day ?? alarm.time.slice(0, 10)}</b> {told(alarm)}</p>)}
      {alarms.length > ALARMS && <p class="soft sm">{many(alarms.length - ALARMS, "earlier alarm")}</p>}
      <Fold title="as a table">
        <table class="bymetric">
          <thead><tr><th>day (UTC)</th><th class="num">judged</th><th class="num">no score</th><th>{passes ? "passed" : "mean score"}, 95 %</th><th>alarms</th></tr></thead>
          <tbody>
            {[...days].reverse().map(({ day, judged, none, rate }) => (
              <tr key={day} class={pressed.includes(day) ? "cur" : ""}>
                <th scope="row"><button class="link-b nw" aria-pressed={pressed.includes(day)} onClick={() => choose(day)}>{day}</button></th>
                <td class="num">{whole(judged)}</td>
                <td class="num">{none ? whole(none) : "·"}</td>
                <td class="nw">{rate ? <><b>{figure(rate[0], passes)}</b> <span class="soft">({figure(rate[1], passes)} to {figure(rate[2], passes)})</span></> : "·"}</td>
                <td>{alarms.filter((alarm) => alarm.day === day).map(({ group, cause }) => `${group}: ${cause}`).join(", ")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Fold>
    </section>
  );
}

function dayOf(day: string, groups: DayGroup[], passes: boolean): Day {
  const rate = weighted(groups.map(({ probability, passed, failed, scored, sum, squares }) =>
    (passes ? { probability, count: passed + failed, sum: passed, squares: passed } : { probability, count: scored, sum, squares })));
  return { day, rate, judged: groups.reduce((total, { scored }) => total + scored, 0), none: groups.reduce((total, { none }) => total + none, 0) };
}

/** A share in percent, or a mean score. */
function figure(value: number, passes: boolean): string {
  return passes ? `${Math.round(100 * value)} %` : score(value);
}

/** An alarm in words, without its day and its metric. */
function told({ group, before, now, cases, cause, again, path }: Alarm): string {
  const what = group === "judge"
    ? `${many(again, "old question")} got other answers, ${now > 0 ? "+" : "−"}${Math.abs(100 * now).toFixed(1)} points on average`
    : `${group}: ${score(before)} → ${score(now)} in ${many(cases, "case")}`;
  return `${what}; cause: ${cause}${path ? `; most moved: ${path}` : ""}`;
}

interface DrawingProps {
  days: Day[];
  alarms: Alarm[];
  passes: boolean;
  pressed: string[];
  choose: (day: string) => void;
}

/** Each day is a column that can be pressed; a day without traces is a gap. */
function Drawing({ days, alarms, passes, pressed, choose }: DrawingProps) {
  const wide = useWidth("(max-width: 640px)") ? 360 : 900;
  const [first, last] = [days[0]!.day, days.at(-1)!.day];
  const of = (Date.parse(last) - Date.parse(first)) / DAY + 1;
  const step = (wide - 8) / Math.max(of, 3);
  const x = (day: string) => 4 + ((Date.parse(day) - Date.parse(first)) / DAY + 0.5) * step;
  const ends = days.flatMap(({ rate }) => rate ?? []);
  const low = Math.floor(10 * Math.min(1, ...ends)) / 10;
  const high = Math.max(low + 0.1, Math.ceil(10 * Math.max(0, ...ends)) / 10);
  const y = (value: number) => 18 + ((high - value) / (high - low)) * (HIGH - 24);
  return (
    <div class="daychart">
      <div class="soft sm ends"><span>{figure(high, passes)}</span><span>{figure(low, passes)}</span></div>
      <svg viewBox={`0 0 ${wide} ${HIGH}`} width="100%" role="group" aria-label={`${passes ? "Pass rate" : "Mean score"} of ${many(days.length, "day")}`}>
        <path class="grid" d={`M0,${y(high)}H${wide}M0,${y(low)}H${wide}`} />
        {days.map(({ day, rate }, i) => {
          const before = days[i - 1];
          return rate && before?.rate && <path key={day} class={x(day) - x(before.day) < 1.5 * step ? "join" : "gap"} d={`M${x(before.day)},${y(before.rate[0])}L${x(day)},${y(rate[0])}`} />;
        })}
        {days.map(({ day, rate, judged }) => {
          const mine = alarms.filter((alarm) => alarm.day === day);
          const on = pressed.includes(day);
          const words = `${day}: ${rate ? `${figure(rate[0], passes)} (${figure(rate[1], passes)} to ${figure(rate[2], passes)})` : "no score"}, ${many(judged, "case")} judged${mine.length ? `, ${many(mine.length, "alarm")}` : ""}`;
          return (
            <g key={day} role="button" tabindex={0} class={on ? "on" : ""} aria-pressed={on} aria-label={words}
              onClick={() => choose(day)} onKeyDown={(event) => pressing(event) && choose(day)}>
              <title>{words}</title>
              <rect class="hit" x={x(day) - step / 2} width={step} y={0} height={HIGH} />
              {rate && <path class="err" d={`M${x(day)},${y(rate[1])}V${y(rate[2])}`} />}
              {rate && <circle cx={x(day)} cy={y(rate[0])} r={Math.min(4, step / 3)} />}
              {mine.length > 0 && <path class="alarm" d={`M${x(day)},2l6,11h-12z`} />}
            </g>
          );
        })}
      </svg>
      <div class="soft sm bar0" style={{ width: `${(100 * (8 + of * step)) / wide}%`, minWidth: "170px" }}><span>{first}</span><span>{first !== last && last}</span></div>
    </div>
  );
}
