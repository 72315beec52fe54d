// The runs that are open: their history, and which two are compared.

import type { OtherRun } from "../data/server.ts";
import { usePage } from "../parts/state.ts";
import { moment, money, percent, range, whole } from "../parts/words.ts";

export function Runs({ runs, chosen }: { runs: OtherRun[]; chosen?: [OtherRun, OtherRun] }) {
  const { place, go, source } = usePage();
  const choose = (which: "old" | "new", run: OtherRun) =>
    go({ more: { ...place.more, old: chosen![0].name, new: chosen![1].name, [which]: run.name, cell: "", pair: "" } });
  return (
    <section class="history">
      <h2>{runs.length > 1 ? "Runs" : "This run"}</h2>
      <table>
        <thead>
          <tr>
            {chosen && <th>compare</th>}
            <th>run</th><th>started</th><th>judge</th><th class="num">cases</th><th class="num">failed</th><th class="num">no score</th><th class="num">passed</th><th class="num">cost</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={run.run}>
              {chosen && (
                <td class="nw">
                  {(["old", "new"] as const).map((which, i) => (
                    <button key={which} class="chip0" aria-pressed={chosen[i]!.run === run.run} disabled={chosen[1 - i]!.run === run.run}
                      aria-label={`${which}: ${run.name}`} onClick={() => choose(which, run)}>{which}</button>
                  ))}
                </td>
              )}
              <td>{run.run === source.server!.head.run ? <b>{run.name}</b> : <a href={`../${run.run}/`}>{run.name}</a>}</td>
              <td class="nw">{moment(run.started)}{!run.finished && <span class="soft"> · not finished</span>}</td>
              <td>{run.judges.join(", ")}</td>
              <td class="num">{whole(run.cases)}</td>
              <td class="num">{run.failed === null ? "·" : whole(run.failed)}</td>
              <td class="num">{run.no_score === null ? "·" : whole(run.no_score)}</td>
              <td class="num nw">{run.passed === null || !run.cases ? "·" : <>{percent(run.passed, run.cases)} <span class="soft">{range(run.passed, run.cases)}</span></>}</td>
              <td class="num nw">{money(run.cost)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
