// A person walks the tree: one question at a time, the judge's answers when the case is done.

import { Fragment } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Asked, Position, Server } from "../data/server.ts";
import { choiceKeys } from "../parts/choices.ts";
import { useKeys } from "../parts/keys.ts";
import { useTitle } from "../parts/screen.tsx";
import { useAnswer, usePage } from "../parts/state.ts";
import { Code, Fold, Judged, plain } from "../parts/texts.tsx";
import { many, range, score, whole } from "../parts/words.ts";

const QUEUES: [string, string, string][] = [
  ["random", "a random sample", "the only queue that can measure agreement with the judge"],
  ["failed", "cases that failed or have no score", ""],
  ["unsure", "cases whose votes were split", ""],
  ["planned", "those of `dagengine labels plan`", "all of them, whatever number you write below"],
];
const NAMES: Record<string, string> = { random: "random sample", failed: "failures", unsure: "unsure", planned: "labels plan", one: "one case" };

export function Label() {
  const { place } = usePage();
  return place.more.queue && place.more.who ? <Queue /> : <Start />;
}

function Start() {
  const { source, place, go, metric } = usePage();
  const { metrics } = source.run;
  const [who, setWho] = useState(place.more.who ?? source.server!.head.who);
  const [kind, setKind] = useState(place.more.queue ?? "random");
  const [count, setCount] = useState("20");
  const [name, setName] = useState(metrics[metric]!.name);
  useTitle("Label", source.run.name);
  const start = (event: Event) => {
    event.preventDefault();
    if (who.trim()) go({ metric: name, more: { ...place.more, who: who.trim(), queue: kind, count: String(Math.max(1, Number(count) || 1)), at: "" } });
  };
  if (source.run.texts === "none") return <><h1>There is nothing to label</h1><p>This run was recorded with --no-texts: run it again without --no-texts to label it.</p></>;
  return (
    <form class="start" onSubmit={start}>
      <h1>Label {source.run.name} by hand</h1>
      <p class="soft">You answer the questions of the tree with one key each. Branches that you do not take are not asked. The judge's answers appear when a case is done.</p>
      <p><label for="who"><b>Your name</b></label><br /><input id="who" value={who} maxLength={100} required onInput={(event) => setWho(event.currentTarget.value)} /></p>
      {metrics.length > 1 && (
        <p><label for="metric"><b>Metric</b></label><br />
          <select id="metric" value={name} onChange={(event) => setName(event.currentTarget.value)}>
            {metrics.map((one) => <option key={one.name}>{one.name}</option>)}
          </select>
        </p>
      )}
      <fieldset>
        <legend><b>Which cases</b></legend>
        {QUEUES.map(([id, word, hint]) => (
          <p key={id}><label><input type="radio" name="queue" checked={kind === id} onChange={() => setKind(id)} /> {word}{hint && <span class="soft sm"> · {hint}</span>}</label></p>
        ))}
      </fieldset>
      <p><label for="count"><b>How many at most</b></label><br /><input id="count" type="number" min="1" value={count} onInput={(event) => setCount(event.currentTarget.value)} /></p>
      <button class="btn" type="submit">Start</button>
    </form>
  );
}

function Queue() {
  const { source, place, go, metric } = usePage();
  const server = source.server!;
  const name = source.run.metrics[metric]!.name;
  const { who = "", queue = "random", count = "20", seed = source.run.name, at = "0" } = place.more;
  const places = useAnswer(() => server.queue(name, queue, Number(count) || 1, seed), [server, name, queue, count, seed]);
  useKeys({ Escape: () => go({ view: "cases", case: null, more: {} }) });
  if (!places) return null;
  if (!places.length) return <><h1>No case is to be labelled</h1><p>None of the cases is {queue === "unsure" ? "unsure: no votes were split" : "in this queue"}.</p><Leave /></>;
  const number = Math.max(0, Math.min(Number(at) || 0, places.length));
  if (number === places.length) return <AllDone server={server} who={who} metric={name} places={places} queue={queue} />;
  const next = (step: number) => go({ more: { ...place.more, at: String(Math.max(0, number + step)) } });
  return <One key={places[number]} who={{ who, metric: name, place: places[number]! }} number={number} of={places.length} queue={queue} next={next} />;
}

function Leave() {
  const { go } = usePage();
  return <p><button class="btn quiet" onClick={() => go({ view: "cases", case: null, more: {} })}>Back to the cases <kbd>Esc</kbd></button></p>;
}

interface OneProps {
  who: { who: string; metric: string; place: number };
  number: number;
  of: number;
  queue: string;
  next: (step: number) => void;
}

function One({ who, number, of, queue, next }: OneProps) {
  const { source } = usePage();
  const server = source.server!;
  const [position, setPosition] = useState<Position | null>(null);
  const [said, setSaid] = useState("");
  const [note, setNote] = useState("");
  const busy = useRef(false);
  const noteField = useRef<HTMLTextAreaElement>(null);
  const show = async (ask: Promise<Position>, saved: string) => {
    if (busy.current) return;
    busy.current = true;
    setSaid("saving …");
    try {
      setPosition(await ask);
      setSaid(saved);
      setNote("");
    } catch (problem) {
      setSaid(problem instanceof Error ? problem.message : String(problem));
      setPosition(await server.position(who).catch(() => null));
    } finally {
      busy.current = false;
    }
  };
  useEffect(() => void show(server.position(who), ""), []);
  const asked = position?.asked ?? null;
  const answer = (choice: number) => asked && void show(server.answer(who, asked.node, choice, note), "saved");
  const undo = (node: string | null) => void show(server.undo(who, node), "taken back");
  const keys = asked ? choiceKeys(asked.choices) : { of: [], cannot: "" };
  const pressed = Object.fromEntries(keys.of.flatMap((key, i) => (key ? [[key, () => answer(i + 1)]] : [])));
  useKeys({
    ...pressed,
    ...(asked ? { [keys.cannot]: () => answer(0) } : {}),
    u: () => undo(null),
    s: () => next(1),
    w: (event) => {
      event.preventDefault();
      noteField.current?.focus();
    },
    Enter: (event) => {
      if (position?.done && !(event.target instanceof HTMLButtonElement)) next(1);
    },
  });
  useTitle(position ? `${position.name}: ${asked ? asked.question : "done"}` : "", source.run.name);
  if (!position) return <p role="status">{said}</p>;
  return (
    <>
      <div class="bar0 labelbar">
        <p class="big"><b>Case {whole(number + 1)} of {whole(of)}</b> <span class="soft">· {NAMES[queue]} · labelled by {who.who}</span></p>
        <p class="soft sm" role="status">{many(position.answered, "question")} answered{said && ` · ${said}`}</p>
      </div>
      <div class="prog slim" role="progressbar" aria-label="cases of the queue" aria-valuenow={number} aria-valuemin={0} aria-valuemax={of}><div style={{ width: `${(100 * (number + (position.done ? 1 : 0))) / of}%` }} /></div>
      <Trail position={position} back={undo} />
      {asked
        ? <div class="label">
            <Evidence position={position} asked={asked} />
            <Question asked={asked} answer={answer} note={note} setNote={setNote} field={noteField} />
          </div>
        : <Done position={position} next={() => next(1)} undo={() => undo(null)} />}
    </>
  );
}

function Trail({ position, back }: { position: Position; back: (node: string) => void }) {
  const { steps, asked } = position;
  return (
    <p class="chips trail">
      {steps.map(({ node, answer, by }, i) => (
        <Fragment key={node}>
          {i > 0 && <span class="soft" aria-hidden="true">→</span>}
          {by === "code"
            ? <span class="chip0 still">{node}: {answer}, by code</span>
            : <button class="chip0" aria-label={`${node || "the case"}: ${answer}, go back to it`} onClick={() => back(node)}>{node || "the case"}: <b>{answer}</b></button>}
        </Fragment>
      ))}
      {asked && <>{steps.length > 0 && <span class="soft" aria-hidden="true">→</span>}<span class="chip0 now">{asked.node || "the case"}</span></>}
    </p>
  );
}

/** A value as texts: a list of texts one by one. */
function Texts({ value }: { value: unknown }) {
  const listed = Array.isArray(value) && value.every((one) => typeof one === "string");
  return <>{(listed ? value : [value]).map((one, i) => <Judged key={i} text={plain(one)} />)}</>;
}

function Evidence({ position, asked }: { position: Position; asked: Asked }) {
  const fields = position.fields ?? {};
  const read = asked.reads.map((path) => path.split(".")[0]!).filter((name, i, all) => name in fields && all.indexOf(name) === i);
  const rest = Object.keys(fields).filter((name) => !read.includes(name) && name !== "name");
  return (
    <section class="texts">
      {read.map((name) => <div key={name} class="field"><p class="h3">{name} <span class="light">· what this question reads</span></p><Texts value={fields[name]} /></div>)}
      {asked.evidence.map(({ node, output }) => (
        <div key={node} class="field"><p class="h3">{node} <span class="light">· as the judge wrote it in the run</span></p>
          {output === null || output === undefined ? <p class="soft sm">The run did not come to it: read the texts themselves.</p> : <Texts value={output} />}
        </div>
      ))}
      {!read.length && !asked.evidence.length && <p class="soft sm">{position.fields ? "This question names no field." : "The texts of this case are not kept."}</p>}
      {rest.length > 0 && (
        <Fold title={`show the other fields: ${rest.join(", ")}`} open={!read.length && !asked.evidence.length}>
          {rest.map((name) => <div key={name} class="field"><p class="h3">{name}</p><Texts value={fields[name]} /></div>)}
        </Fold>
      )}
    </section>
  );
}

interface QuestionProps {
  asked: Asked;
  answer: (choice: number) => void;
  note: string;
  setNote: (note: string) => void;
  field: { current: HTMLTextAreaElement | null };
}

function Question({ asked, answer, note, setNote, field }: QuestionProps) {
  const keys = choiceKeys(asked.choices);
  const heading = useRef<HTMLHeadingElement>(null);
  // Not after painting: a person who is already in the note would lose the focus.
  useLayoutEffect(() => heading.current?.focus(), [asked.node]);
  return (
    <section>
      <p class="h3 soft">{asked.node || "The case"}</p>
      <h1 class="asked" ref={heading} tabIndex={-1} dir="auto"><Code text={asked.question} /></h1>
      <div class={asked.choices.length > 6 && asked.choices.every((choice) => choice.length < 4) ? "choices scale" : "choices"}>
        {asked.choices.map((choice, i) => (
          <button key={choice} class="choice" onClick={() => answer(i + 1)} aria-keyshortcuts={keys.of[i] || undefined}>{keys.of[i] ? <kbd aria-hidden="true">{keys.of[i]}</kbd> : <span class="nokey" />} <b dir="auto">{choice}</b></button>
        ))}
        <button class="choice quiet" onClick={() => answer(0)} aria-keyshortcuts={keys.cannot}><kbd aria-hidden="true">{keys.cannot}</kbd> I cannot tell</button>
      </div>
      <p class="field"><label for="note" class="soft sm">Note for this answer</label><br />
        <textarea id="note" ref={field} rows={2} maxLength={10000} value={note} onInput={(event) => setNote(event.currentTarget.value)}
          onKeyDown={(event) => { if (event.key === "Escape") { event.stopPropagation(); event.currentTarget.blur(); } }} />
      </p>
      <p class="later">The judge's answers show when this case is done.</p>
      <p class="foot"><span><kbd>u</kbd> undo</span><span><kbd>w</kbd> write a note</span><span><kbd>s</kbd> skip the case</span><span><kbd>Esc</kbd> leave, all is saved</span></p>
    </section>
  );
}

function Done({ position, next, undo }: { position: Position; next: () => void; undo: () => void }) {
  const { judge } = position;
  const heading = useRef<HTMLHeadingElement>(null);
  useLayoutEffect(() => heading.current?.focus(), []);
  const outcome = position.success === null ? (position.score === null ? position.why || "no outcome" : score(position.score)) : position.success ? "passes" : "fails";
  return (
    <div class="done">
      <h1 ref={heading} tabIndex={-1}>{position.name}: by your answers it {position.success === null ? "ends with" : ""} {outcome}</h1>
      {judge && (
        <>
          <p class="decision">The judge: {judge.failure ?? `${judge.success === null ? "" : judge.success ? "passed, " : "failed, "}${judge.score === null ? "no score" : score(judge.score)}`}{position.score !== null && judge.score !== null && ` · you: ${score(position.score)}`}</p>
          <table class="both">
            <thead><tr><th>node</th><th>you</th><th>judge</th><th>same</th></tr></thead>
            <tbody>
              {judge.nodes.map((one) => (
                <tr key={one.node}>
                  <th scope="row">{one.node}</th>
                  <td><b>{one.you ?? <span class="soft">not asked</span>}</b></td>
                  <td><b>{one.judge ?? <span class="soft">not asked</span>}</b>{one.reason && <p class="why soft" dir="auto">{one.reason}</p>}</td>
                  <td>{one.same === null ? <span class="soft">·</span> : one.same ? "✓ same" : <b class="fail">✕ not the same</b>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </>
      )}
      <p class="chips"><button class="btn" onClick={next}>Next case <kbd>Enter</kbd></button> <button class="btn quiet" onClick={undo}>Undo <kbd>u</kbd></button></p>
    </div>
  );
}

function AllDone({ server, who, metric, places, queue }: { server: Server; who: string; metric: string; places: number[]; queue: string }) {
  const { source } = usePage();
  const positions = useAnswer(() => Promise.all(places.map((place) => server.position({ who, metric, place }))), [server, who, metric, places]);
  useTitle("Labelled", source.run.name);
  if (!positions) return null;
  const told = positions.filter((one) => one.done && one.success !== null && one.judge?.success !== null && one.judge !== null);
  const same = told.filter((one) => one.success === one.judge!.success).length;
  return (
    <>
      <h1>{whole(positions.filter((one) => one.done).length)} of {many(positions.length, "case")} labelled</h1>
      {queue === "random" && told.length > 0 && <p class="decision">You and the judge agree on <b>{whole(same)} of {whole(told.length)}</b>, {Math.round((100 * same) / told.length)} % {range(same, told.length)}.</p>}
      {queue === "random" && <ByNode positions={positions} />}
      {queue !== "random" && <p class="soft">An agreement is told of a random sample only: these cases were chosen for what the judge said.</p>}
      <p>The benchmark holds the judge against these labels:</p>
      <code class="cmd">{source.run.benchmark}{queue === "random" && " --labels-random"}</code>
      {source.run.benchmark.includes("METRICS.py --data FILE") && <p class="soft sm">No command started this run alone: put in your metrics, cases and judge.</p>}
      <Leave />
    </>
  );
}

/** How often a person and the judge gave the same answer, by node: only where both answered. */
function ByNode({ positions }: { positions: Position[] }) {
  const nodes = new Map<string, { same: number; of: number }>();
  for (const { node, same } of positions.flatMap((one) => (one.done ? (one.judge?.nodes ?? []) : []))) {
    if (same === null) continue;
    const count = nodes.get(node) ?? { same: 0, of: 0 };
    nodes.set(node, { same: count.same + (same ? 1 : 0), of: count.of + 1 });
  }
  if (!nodes.size) return null;
  return (
    <table class="bynode" aria-label="Agreement by node">
      <thead><tr><th>node</th><th class="num">same answer</th><th class="num">of</th><th class="num">share, 95 %</th></tr></thead>
      <tbody>
        {[...nodes].map(([node, { same, of }]) => (
          <tr key={node}>
            <th scope="row">{node}</th><td class="num">{whole(same)}</td><td class="num">{whole(of)}</td>
            <td class="num nw">{Math.round((100 * same) / of)} % <span class="soft">{range(same, of)}</span></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
