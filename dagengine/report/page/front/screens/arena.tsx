// An arena: who won, whether that is more than chance, and whether the order decided.

import type { Arena as Contest, Contestant } from "../data/contest.ts";
import { arenaOf, ranking, TIE, wins } from "../data/contest.ts";
import { interval, signTest } from "../data/statistics.ts";
import type { Counts, Metric, Part } from "../data/source.ts";
import { Parts } from "../parts/controls.tsx";
import { useKeys } from "../parts/keys.ts";
import { dataLine, judged, Lines, Texts, moreLines } from "../parts/lines.tsx";
import { Announce, Unfinished, useCounts, useTitle } from "../parts/screen.tsx";
import { useChosen, usePage, usePick } from "../parts/state.ts";
import { Listed } from "../parts/table.tsx";
import { listed, many, percent, whole } from "../parts/words.ts";

export function Arena() {
  const { source, filter, go } = usePage();
  const { run } = source;
  const metric = run.metrics[filter.metric]!;
  const arena = arenaOf(metric)!;
  const { counts, whole: all, filtered } = useCounts();
  const chosen = useChosen(counts);
  const title = !counts || !all ? "" : filtered ? `${whole(counts.cases)} of ${many(all.cases, "case")} chosen` : headline(arena, all);
  useTitle(title, run.name);
  useKeys({ a: () => go({ state: "all", parts: [] }), Backspace: () => go({ parts: filter.parts.slice(0, -1) }) });
  if (!counts || !all) return null;
  return (
    <>
      <div class="head full">
        <div>
          <h1>{all.none === all.cases && !filtered && <span class="none">⊘ </span>}{title}</h1>
          {filtered ? <Parts /> : <Summary metric={metric} arena={arena} counts={all} />}
        </div>
      </div>
      <Announce text={`${whole(counts.cases)} of ${many(all.cases, "case")}`} />
      <div class="body b4">
        <div class="side">
          <Wins arena={arena} counts={all} />
          <Places metric={metric} arena={arena} counts={all} />
        </div>
        <Listed chosen={chosen} shown={[filter.metric]} chips={<Chips arena={arena} counts={all} />} />
      </div>
    </>
  );
}

function headline(arena: Contest, counts: Counts): string {
  const of = counts.cases - counts.none;
  if (!counts.cases) return "The run has no cases";
  if (!of) return "No case has a score";
  const [first, second] = ranking(arena, counts);
  if (!first?.wins) return `No winner: all ${many(of, "case")} are ties`;
  if (second && second.wins === first.wins) {
    const lead = ranking(arena, counts).filter((one) => one.wins === first.wins);
    return `No winner: ${listed(lead.map((one) => one.of.name))} won ${whole(first.wins)} of ${many(of, "case")} each`;
  }
  return `${first.of.name} won ${whole(first.wins)} of ${many(of, "case")}${second ? `, ${second.of.name} ${whole(second.wins)}` : ""}`;
}

function Summary({ metric, arena, counts }: { metric: Metric; arena: Contest; counts: Counts }) {
  const { source } = usePage();
  const { run } = source;
  const of = counts.cases - counts.none;
  const ranked = ranking(arena, counts);
  const [first, second] = ranked;
  const ties = wins(arena.tie, counts);
  const chance = first && second ? signTest(first.wins, second.wins) : null;
  const places = arena.places.map((answer) => counts.answers[answer]!.items);
  const votes = places.reduce((sum, count) => sum + count, 0);
  const lines: [string, preact.ComponentChildren][] = [];
  if (of) lines.push(["result", <>
    {ranked.map(({ of: who, wins }, i) => <>{i > 0 && " · "}{who.name} {i ? whole(wins) : <b>{whole(wins)}</b>}</>)}
    {ties > 0 && ` · tie ${whole(ties)}`}{counts.none > 0 && <span class="none"> · ⊘ {whole(counts.none)} no score</span>}
  </>]);
  if (chance !== null && first!.wins + second!.wins > 0 && of > 1) lines.push(["lead", <>
    {whole(first!.wins)} to {whole(second!.wins)} against the second: <b>{chance < 0.05 ? "more than chance" : "could be chance"}</b>{" "}
    <span class="soft">(sign test, mid-p, {chance < 0.001 ? "p below 0.001" : `p = ${Number(chance.toPrecision(2))}`})</span>
  </>]);
  if (of) lines.push(["order", counts.unsure
    ? <>in <b>{whole(counts.unsure)}</b> of {many(of, "case")} the vote changed with the order{votes > 0 && ` · shown first won ${percent(places[0]!, votes)} of the votes, ${percent(1, arena.places.length)} if the place did not matter`}</>
    : "no vote changed with the order"]);
  const asked = metric.nodes.find(({ kind }) => kind === "comparison")?.question;
  return (
    <>
      <Lines lines={[...lines, ["judge", <>{judged(run)}{asked && <span class="soft"> · “{asked.length > 90 ? `${asked.slice(0, 89)}…` : asked}”</span>}</>], ["data", dataLine(run)], ...moreLines(source)]} />
      {!run.finished && <Unfinished />}
      <Texts run={run} />
    </>
  );
}

/** The condition of a filter: this contestant won. */
function won(arena: Contest, of: Contestant): Part {
  return { kind: "e", key: `${arena.winner}:${of.name}`, not: false };
}

function Wins({ arena, counts }: { arena: Contest; counts: Counts }) {
  const { filter } = usePage();
  const pick = usePick();
  const of = counts.cases - counts.none;
  const ties = wins(arena.tie, counts);
  const equal = of ? (of - ties) / arena.contestants.length / of : 0;
  const name = (who: Contestant) => who.wins === null ? <>{who.name}</> : (
    <button class="link-b" aria-pressed={filter.parts.some(({ key }) => key === won(arena, who).key)} onClick={(event) => pick(won(arena, who), event)}>{who.name}</button>
  );
  return (
    <section class="wsec">
      <h2>Wins per contestant</h2>
      <table class="wins">
        <thead><tr><th>contestant</th><th class="num">wins</th><th class="num">share</th><th class="axis">0 to 100 %, interval</th></tr></thead>
        <tbody>
          {ranking(arena, counts).map(({ of: who, wins }) => (
            <tr key={who.name}>
              <th scope="row">{name(who)}</th>
              <td class="num"><b class="big">{whole(wins)}</b></td>
              <td class="num nw">{of ? percent(wins, of) : "·"}</td>
              <td class="axis">{of > 1 && <Interval hits={wins} of={of} equal={equal} />}</td>
            </tr>
          ))}
          {ties > 0 && <tr><th scope="row">{name(arena.tie)}</th><td class="num"><b class="big">{whole(ties)}</b></td><td class="num nw">{percent(ties, of)}</td><td class="soft sm">nobody won more than half of the orders</td></tr>}
          {counts.none > 0 && <tr><th scope="row" class="none">⊘ no score</th><td class="num"><b class="big none">{whole(counts.none)}</b></td><td /><td class="soft sm">not counted above</td></tr>}
        </tbody>
      </table>
      {of > 1 && <p class="soft sm">dotted: {Math.round(100 * equal)} %, if all were equal</p>}
    </section>
  );
}

/** A share as a dot with its 95 % interval, and the share if all were equal. */
function Interval({ hits, of, equal }: { hits: number; of: number; equal: number }) {
  const [low, high] = interval(hits, of).map((end) => 100 * end) as [number, number];
  const words = `${Math.round(low)} to ${Math.round(high)}`;
  return (
    <span class="ci" role="img" aria-label={`${percent(hits, of)}, interval ${words} %`}>
      <i class="eq" style={{ left: `${100 * equal}%` }} /><i class="ln" style={{ left: `${low}%`, width: `${high - low}%` }} /><i class="pt" style={{ left: `${(100 * hits) / of}%` }} />
      <span class="soft sm">{words}</span>
    </span>
  );
}

function Places({ metric, arena, counts }: { metric: Metric; arena: Contest; counts: Counts }) {
  const votes = arena.places.map((answer) => counts.answers[answer]!.items);
  const of = votes.reduce((sum, count) => sum + count, 0);
  if (!of) return null;
  return (
    <section class="wsec">
      <h2>Does the place matter?</h2>
      <table class="wins">
        <thead><tr><th>the winner of an order was</th><th class="num">votes</th><th class="num">share</th><th class="barcell"><span class="vh">bar</span></th></tr></thead>
        <tbody>
          {arena.places.map((answer, i) => (
            <tr key={answer}>
              <th scope="row">{metric.answers[answer]!.verdict.replace("shown ", "shown in place ")}</th>
              <td class="num">{whole(votes[i]!)}</td><td class="num nw">{percent(votes[i]!, of)}</td>
              <td class="barcell"><span class="share" aria-hidden="true"><i style={{ width: `${(100 * votes[i]!) / of}%` }} /></span></td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="soft sm">Every answer was shown once in every position.</p>
    </section>
  );
}

function Chips({ arena, counts }: { arena: Contest; counts: Counts }) {
  const { filter, place, go } = usePage();
  const pick = usePick();
  const plain = !filter.parts.length && (place.state === null || place.state === "all");
  const chip = (word: string, count: number, on: boolean, press: (event: MouseEvent) => void) =>
    count > 0 && <button key={word} class="chip0" aria-pressed={on} onClick={press}>{word} {whole(count)}</button>;
  return (
    <p class="chips">
      {chip("All", counts.cases, plain, () => go({ parts: [], state: "all" }))}
      {[...ranking(arena, counts).map((one) => one.of), arena.tie].map((who) => who.wins !== null &&
        chip(who.name === TIE ? TIE : who.name, wins(who, counts), filter.parts.some(({ key }) => key === won(arena, who).key), (event) => pick(won(arena, who), event)))}
      {chip("⊘ No score", counts.none, place.state === "none", () => go({ state: "none", parts: [] }))}
      {chip("changed with the order", counts.unsure, place.state === "unsure", () => go({ state: "unsure", parts: [] }))}
    </p>
  );
}
