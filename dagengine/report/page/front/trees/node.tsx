// One node: its question, what it reads, and a table of its answers.

import type { Counts, Metric, Part } from "../data/source.ts";
import { answerKey, words } from "../data/names.ts";
import { Code } from "../parts/texts.tsx";
import { many, whole } from "../parts/words.ts";
import { kindWord } from "./tree.tsx";

interface Props {
  metric: Metric;
  /** Counts of the whole run: the answers of a node are not filtered by one of them. */
  counts: Counts;
  node: number;
  parts: Part[];
  choose: (part: Part, event: MouseEvent | KeyboardEvent) => void;
}

export function NodePanel({ metric, counts, node, parts, choose }: Props) {
  const { name, kind, question, reads, inputs, hash, votes, examples } = metric.nodes[node]!;
  const asked = counts.nodes[node]!;
  const answers = metric.answers.flatMap((a, answer) => (a.node === node ? [{ answer, verdict: a.verdict }] : []));
  answers.sort((a, b) => counts.answers[b.answer]!.cases - counts.answers[a.answer]!.cases);
  const most = Math.max(1, ...answers.map(({ answer }) => counts.answers[answer]!.cases));
  const items = answers.some(({ answer }) => counts.answers[answer]!.items > 0);
  const voted = votes > 1 || answers.some(({ answer }) => counts.answers[answer]!.split > 0);
  const ran = kind === "metric" ? "reached" : ["code", "task", "field"].includes(kind) ? "ran" : "asked";
  return (
    <section class="node">
      <h2>
        {name} <span class="light">· {kindWord(kind)} · {ran} in {whole(asked.cases)} cases{votes > 1 && `, up to ${votes} votes each`}{examples && `, ${many(examples, "example")} shown`}</span>
      </h2>
      {question && <p class="question"><Code text={question} /></p>}
      <p class="soft sm">
        {reads.length > 0 && <>reads {reads.join(", ")}</>}
        {inputs.length > 0 && <>{reads.length ? " · " : ""}after {inputs.join(", ")}</>}
        {hash && <>{reads.length + inputs.length > 0 && " · "}definition {hash.slice(0, 8)}</>}
      </p>
      {answers.length + Object.keys(asked.broken).length > 0 && (
        <table class="answers">
          <thead>
            <tr>
              <th>answer</th><th class="num">cases</th><th class="num">failed</th>
              {(items || voted) && <th class="num">{items ? "items" : "votes split"}</th>}<td />
            </tr>
          </thead>
          <tbody>
            {answers.map(({ answer, verdict }) => {
              const { cases, failed, none, split, items: count } = counts.answers[answer]!;
              const key = answerKey(metric, answer);
              const mine = parts.some((part) => part.kind === "e" && part.key === key);
              return (
                <tr key={key} class={mine ? "cur" : ""}>
                  <td><button class="link-b" aria-pressed={mine} onClick={(event) => choose({ kind: "e", key, not: false }, event)}>{verdict}</button></td>
                  <td class="num">{whole(cases)}</td>
                  <td class={`num ${failed ? "fail" : ""}`}>{failed ? `✕ ${whole(failed)}` : "0"}</td>
                  {(items || voted) && <td class="num">{whole(items ? count : split)}</td>}
                  <td class="barcell">
                    <span class="share" aria-hidden="true">
                      <i class="x" style={{ width: `${(100 * failed) / most}%` }} />
                      <i class="n" style={{ width: `${(100 * none) / most}%` }} />
                      <i style={{ width: `${(100 * (cases - failed - none)) / most}%` }} />
                    </span>
                  </td>
                </tr>
              );
            })}
            {Object.entries(asked.broken).map(([kind, cases]) => (
              <tr key={kind}>
                <td><span class="none">⊘ {words(kind)}</span></td>
                <td class="num">{whole(cases)}</td><td class="num">·</td>{(items || voted) && <td class="num">·</td>}<td />
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
