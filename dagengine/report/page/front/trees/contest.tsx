// One case of an arena: what each contestant wrote, and who won which order.

import type { Contest } from "../data/contest.ts";
import { TIE } from "../data/contest.ts";
import type { Case } from "../data/source.ts";
import { Judged, plain } from "../parts/texts.tsx";
import { listed, many } from "../parts/words.ts";

type Fields = Record<string, unknown>;
const ORDINAL = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"];

export function ContestView({ shown, contest }: { shown: Case; contest: Contest }) {
  const contestants = (shown.fields?.contestants ?? {}) as Record<string, Fields>;
  const votes = new Map<string, number>();
  for (const { winner } of contest.ballots) votes.set(winner ?? TIE, (votes.get(winner ?? TIE) ?? 0) + 1);
  const names = [...new Set([...Object.keys(contestants), ...contest.ballots[0]!.order])]
    .sort((a, b) => Number(b === contest.winner) - Number(a === contest.winner) || (votes.get(b) ?? 0) - (votes.get(a) ?? 0));
  const fields = [...new Set(Object.values(contestants).flatMap((one) => Object.keys(one)))].filter((name) => !["name", "type"].includes(name));
  const value = (who: string, name: string) => contestants[who]?.[name];
  const shared = fields.filter((name) => names.length > 1 && new Set(names.map((who) => JSON.stringify(value(who, name)))).size === 1);
  const of = contest.ballots.length;
  return (
    <>
      {shared.map((name) => value(names[0]!, name) != null && (
        <div key={name} class="field"><h2 class="vh">{name}, of all</h2>{name === "input" ? <p class="asked0" dir="auto">{plain(value(names[0]!, name))}</p> : <Judged text={plain(value(names[0]!, name))} />}</div>
      ))}
      <div class="sides">
        {names.map((who) => (
          <section key={who} class={who === contest.winner ? "won" : ""}>
            <div class="bar0"><h2>{who}</h2><span class={who === contest.winner ? "nw b" : "nw soft"}>won {votes.get(who) ?? 0} of {of}</span></div>
            {fields.filter((name) => !shared.includes(name) && value(who, name) != null).map((name, _, own) => (
              <div key={name}>{own.length > 1 && <h3>{name}</h3>}<Judged text={plain(value(who, name))} /></div>
            ))}
            <p class="soft sm">{many(plain(value(who, "actual_output")).split(/\s+/).filter(Boolean).length, "word")} · shown {contest.ballots.map(({ order }) => ORDINAL[order.indexOf(who)] ?? order.indexOf(who) + 1).join(", ")}</p>
          </section>
        ))}
      </div>
      <h2>Orders and votes</h2>
      <table class="orders">
        <thead><tr><td />{contest.ballots[0]!.order.map((_, i) => <th key={i}>shown {ORDINAL[i] ?? i + 1}</th>)}<th>why</th></tr></thead>
        <tbody>
          {contest.ballots.map(({ order, winner, reason }, i) => (
            <tr key={i}>
              <th scope="row"><span class="vh">order </span>{i + 1}</th>
              {order.map((who, place) => <td key={place} data-n={`shown ${ORDINAL[place] ?? place + 1}`}>{who === winner ? <><b>{who}</b> won</> : <span class="soft">{who}</span>}</td>)}
              <td dir="auto">{winner === null && <b>tie. </b>}{reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="soft sm">Votes: {names.map((who) => `${who} ${votes.get(who) ?? 0}`).join(", ")}{votes.has(TIE) && `, tie ${votes.get(TIE)}`}. The judge saw no names, only places.</p>
    </>
  );
}

/** Whether the order decided, in a sentence. */
export function orderWords({ ballots, winner }: Contest): string {
  const others = ballots.filter((ballot) => (ballot.winner ?? TIE) !== winner);
  if (!others.length) return "All orders agree.";
  const told = [...new Set(others.flatMap((ballot) => (ballot.winner === null ? [] : [`${ballot.winner} won when it was shown ${ORDINAL[ballot.order.indexOf(ballot.winner)]}`])))];
  return `The order matters here: ${listed([...told, ...(others.some((ballot) => ballot.winner === null) ? ["one order was a tie"] : [])])}.`;
}
