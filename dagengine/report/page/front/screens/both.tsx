// One case in two runs: both walks side by side, the first difference marked.

import { useEffect } from "preact/hooks";
import type { Change, OtherRun, WalkOf, WalkStep } from "../data/server.ts";
import { CAUSE, changedWords } from "../parts/changed.ts";
import { useKeys } from "../parts/keys.ts";
import { useTitle } from "../parts/screen.tsx";
import { useAnswer, usePage } from "../parts/state.ts";
import { Code, Fold, Judged, plain } from "../parts/texts.tsx";
import { score, SIGN, stateOf, whole } from "../parts/words.ts";

interface Props {
  runs: [OtherRun, OtherRun];
  metric: string;
  places: [number, number];
  change: Change | null;
  /** The changes that keys go through. */
  among: Change[];
}

export function Both({ runs, metric, places, change, among }: Props) {
  const { source, place, go } = usePage();
  const server = source.server!;
  const found = useAnswer(() => server.walks(runs[0].run, runs[1].run, metric, places), [server, runs[0].run, runs[1].run, metric, places.join()]);
  const back = () => go({ more: { ...place.more, pair: "" } });
  const first = change?.node ?? null;
  const at = change ? among.indexOf(change) : -1;
  const next = (step: number) => {
    const other = at < 0 ? undefined : among[at + step];
    if (other) go({ more: { ...place.more, pair: other.index.join("-") } }, "replace");
  };
  useKeys({ Escape: back, j: () => next(1), k: () => next(-1) });
  useTitle(found ? `${found[1].case} in both runs` : "", source.run.name);
  useEffect(() => document.getElementById("first")?.scrollIntoView({ block: "center" }), [found, first]);
  if (!found) return null;
  const [old, now] = found;
  return (
    <>
      <p class="soft sm"><a href="#v=diff" onClick={(event) => { event.preventDefault(); back(); }}>Compare</a> <kbd>Esc</kbd>
        {at >= 0 && among.length > 1 && (
          <>{" · "}{whole(at + 1)} of {whole(among.length)} <button class="btn" disabled={at === 0} onClick={() => next(-1)}><kbd>k</kbd> previous</button>{" "}
            <button class="btn" disabled={at === among.length - 1} onClick={() => next(1)}>next <kbd>j</kbd></button></>
        )}
      </p>
      <h1>{change && <span aria-hidden="true">{SIGN[stateOf(change.state[0])]} → {SIGN[stateOf(change.state[1])]} </span>}{now.case}: {ended(old)} → {ended(now)}</h1>
      {change && <p class="decision"><b>{change.node || "The settings"}.</b> {change.answer[0]} → {change.answer[1]}: {CAUSE[change.cause]}{change.detail && `, ${change.detail}`}.</p>}
      <Texts old={old} now={now} />
      <table class="both">
        <thead><tr><th>node</th><th>{runs[0].name}</th><th>{runs[1].name}</th></tr></thead>
        <tbody>
          {names(old, now).map((name) => {
            const [before, after] = [step(old, name), step(now, name)];
            const here = name === first;
            return (
              <tr key={name} id={here ? "first" : undefined} class={here ? "at" : ""}>
                <th scope="row">
                  {name}<br /><span class="light sm">{(after ?? before)!.kind}{here && <b> · first difference{change && `, ${CAUSE[change.cause]}`}</b>}</span>
                  <Question old={old.questions[name] ?? null} now={now.questions[name] ?? null} />
                </th>
                <td data-n={runs[0].name}><Said step={before} /></td>
                <td data-n={runs[1].name}><Said step={after} /></td>
              </tr>
            );
          })}
          <tr><th scope="row">score</th><td data-n={runs[0].name}><b>{ended(old)}</b></td><td data-n={runs[1].name}><b>{ended(now)}</b></td></tr>
        </tbody>
      </table>
    </>
  );
}

/** What a node asked, word by word where it changed; the functions of code have no question. */
function Question({ old, now }: { old: string | null; now: string | null }) {
  const text = now ?? old;
  if (text === null || /^(\w+|<lambda>)$/.test(text)) return null;
  return (
    <p class="light sm" dir="auto">
      {old !== null && now !== null && old !== now
        ? changedWords(old, now).map(({ text, how }, i) => (how === "gone" ? <del key={i}>{text}</del> : how === "new" ? <ins key={i}>{text}</ins> : text))
        : <Code text={text} />}
    </p>
  );
}

function ended(walk: WalkOf): string {
  if (walk.score !== null) return score(walk.score);
  return walk.failure ? `no score (${walk.failure.kind.replaceAll("_", " ")} at ${walk.failure.node})` : "no score";
}

function step(walk: WalkOf, name: string): WalkStep | undefined {
  return walk.steps.find((one) => one.node === name);
}

/** The nodes of both walks in their order; one of the old walk alone after the one before it. */
function names(old: WalkOf, now: WalkOf): string[] {
  const found = now.steps.map((one) => one.node);
  let after = -1;
  for (const { node } of old.steps) {
    const at = found.indexOf(node);
    if (at >= 0) after = Math.max(after, at);
    else found.splice(++after, 0, node);
  }
  return found;
}

function Said({ step }: { step: WalkStep | undefined }) {
  if (!step) return <span class="soft">not asked</span>;
  if (step.outcome !== "ok") return <><b class="none">⊘ {step.outcome.replaceAll("_", " ")}</b><p class="why" dir="auto">{step.reason}</p></>;
  const decided = step.verdict !== undefined && step.verdict !== null;
  const answer = decided ? plain(step.verdict) : step.score !== undefined ? score(step.score) : null;
  const votes = decided && step.votes?.length ? `${step.votes.filter((vote) => vote === step.verdict).length} of ${step.votes.length} votes` : null;
  return (
    <>
      {answer !== null && <b class="ans">→ {answer}</b>}
      {votes && <span class="soft sm"> {votes}</span>}
      {step.reason && <p class="why" dir="auto">{step.reason}</p>}
      {answer === null && <p class="why" dir="auto">{plain(step.output)}</p>}
    </>
  );
}

/** The fields that differ, both; the others folded. */
function Texts({ old, now }: { old: WalkOf; now: WalkOf }) {
  if (!old.fields || !now.fields) return <p class="soft sm">The texts are not kept in {old.fields ? "the new run" : "the old run"}.</p>;
  const fields = [...new Set([...Object.keys(now.fields), ...Object.keys(old.fields)])];
  const other = fields.filter((name) => plain(old.fields![name]) !== plain(now.fields![name]));
  return (
    <>
      {other.map((name) => (
        <div key={name} class="twice">
          <div><h2 class="h3">{name}, before</h2><Judged text={plain(old.fields![name])} /></div>
          <div><h2 class="h3">{name}, now</h2><Judged text={plain(now.fields![name])} /></div>
        </div>
      ))}
      <Fold title={`${other.length ? "the fields that are the same" : "the texts, the same in both"}: ${fields.filter((name) => !other.includes(name)).join(", ")}`}>
        {fields.filter((name) => !other.includes(name)).map((name) => (
          <div key={name} class="field"><h2 class="h3">{name}</h2><Judged text={plain(now.fields![name])} /></div>
        ))}
      </Fold>
    </>
  );
}
