// What stands around every screen: the run, the screens, the search, the keys.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Hatch } from "../parts/chart.tsx";
import { letters, useKeys } from "../parts/keys.ts";
import { isMany, useAnswer, usePage } from "../parts/state.ts";
import { BY_WORDS, moment } from "../parts/words.ts";
import { SCREENS } from "./screens.ts";

const REFRESH = 5000; // milliseconds between looks at a run that goes on

/** Shows a run that goes on anew when it has more rows; the address keeps what is shown. */
function useRefresh(): void {
  const { source } = usePage();
  const { server, run } = source;
  useEffect(() => {
    if (!server || run.finished) return;
    const look = async () => {
      const now = await server.status().catch(() => null);
      if (now && (now.rows !== run.cases || now.finished)) location.reload();
    };
    const timer = setInterval(() => void look(), REFRESH);
    return () => clearInterval(timer);
  }, [server, run]);
}

export function Frame({ children }: { children: ComponentChildren }) {
  const { source, place, go, unknown } = usePage();
  useRefresh();
  const [help, setHelp] = useState(false);
  const { run } = source;
  const tabs = SCREENS.filter((screen) => screen.tab && (!screen.needs || screen.needs(source)));
  const pairs = Object.fromEntries(tabs.map((tab) => [`g ${tab.view[0]}`, () => go({ view: tab.view, case: null })]));
  const digits = Object.fromEntries(
    run.metrics.slice(0, 9).map((metric, i) => [String(i + 1), () => isMany(source) && place.view === "cases" && go({ metric: metric.name, parts: [] })]),
  );
  useKeys({
    ...pairs,
    ...digits,
    "?": () => setHelp(!help),
    Escape: () => back(help, setHelp),
  });
  const back = (open: boolean, close: (open: boolean) => void) => {
    if (open) close(false);
    else if (document.activeElement instanceof HTMLInputElement) document.activeElement.blur();
    else if (place.view === "case") go({ view: "cases", case: null, step: null, more: { ...place.more, under: "" } });
    else if (place.view === "cases") go({ parts: [], text: "" });
  };
  return (
    <>
      <header class="top">
        <span class="soft sm brand">dagengine</span>
        {source.server ? <RunMenu /> : <RunName />}
        {tabs.length > 1 && (
          <nav aria-label="Screens">
            {tabs.map((tab) => {
              const here = tab.view === place.view || (tab.view === "cases" && place.view === "case");
              const href = tab.view === "cases" ? "#" : `#v=${tab.view}`;
              return (
                <a key={tab.view} href={href} aria-current={here ? "page" : undefined}
                  onClick={(event) => { event.preventDefault(); go({ view: tab.view, case: null }); }}>
                  {tab.tab}
                </a>
              );
            })}
          </nav>
        )}
        <Search />
        <button class="key" aria-label="? all keys" aria-expanded={help} onClick={() => setHelp(!help)}><kbd>?</kbd></button>
      </header>
      <Hatch />
      {help && <Help close={() => setHelp(false)} />}
      <main>
        {unknown.map((name) => <p key={name} class="note m" role="status">This link names {name}, which this run does not have.</p>)}
        {children}
      </main>
    </>
  );
}

function RunName() {
  const { run } = usePage().source;
  return <span class="run">{run.name}{run.started && <span class="light when"> · {moment(run.started)}</span>}</span>;
}

/** The run that is shown, and the way to every other one. */
function RunMenu() {
  const { source, go } = usePage();
  const server = source.server!;
  const box = useRef<HTMLDetailsElement>(null);
  const [open, setOpen] = useState(false);
  const [typed, setTyped] = useState("");
  const history = useAnswer(async () => (open ? await server.runs() : null), [server, open]);
  useKeys({ r: (event) => { event.preventDefault(); setOpen(true); } });
  useLayoutEffect(() => { if (open && history) box.current?.querySelector<HTMLElement>("input, a")?.focus(); }, [open, history !== null]);
  const close = () => { setOpen(false); box.current?.querySelector("summary")?.focus(); };
  const here = history?.runs.find(({ run }) => run === server.head.run);
  const others = history?.runs.filter(({ run, name, metrics }) => run !== server.head.run && `${name} ${metrics.join(" ")}`.toLowerCase().includes(typed.toLowerCase())).reverse() ?? [];
  const group = (title: string, same: boolean) => {
    const runs = others.filter(({ run }) => here?.comparable.includes(run) === same);
    return runs.length > 0 && (
      <>
        <p class="soft sm">{title}</p>
        <ul>{runs.map((other) => <li key={other.run}><a href={`../${other.run}/`}>{same ? "= " : ""}{other.name} <span class="soft">· {moment(other.started)}</span></a></li>)}</ul>
      </>
    );
  };
  return (
    <details class="runs" ref={box} open={open} onToggle={(event) => setOpen(event.currentTarget.open)}
      onKeyDown={(event) => { if (event.key === "Escape" && open) { event.stopPropagation(); close(); } }}>
      <summary><RunName /></summary>
      {open && history && (
        <div class="menu">
          {history.runs.length > 8 && <input type="search" aria-label="Find a run" placeholder="Find a run" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />}
          {group("Same cases: comparable", true)}
          {group("Other cases: open only", false)}
          {history.runs.length < 2 && <p class="soft sm">no other run is open</p>}
          <p><a href="#v=runs" onClick={(event) => { event.preventDefault(); setOpen(false); go({ view: "runs", case: null, more: {} }); }}>All runs</a></p>
        </div>
      )}
    </details>
  );
}

function Search() {
  const { source, place, go } = usePage();
  const [text, setText] = useState(place.text);
  const field = useRef<HTMLInputElement>(null);
  const what = source.byWords ? "Search words in texts" : "Search texts and reasons";
  useEffect(() => setText(place.text), [place.text]);
  useEffect(() => {
    if (text === place.text) return;
    const soon = setTimeout(() => go({ text, view: "cases", case: null }, "replace"), 150);
    return () => clearTimeout(soon);
  }, [text]);
  useKeys({
    "/": (event) => {
      event.preventDefault();
      field.current?.focus();
    },
  });
  return (
    <search class="find">
      <svg width="16" height="16" viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.6" aria-hidden="true">
        <circle cx="7" cy="7" r="4.6" />
        <path d="M10.5 10.5 14.5 14.5" />
      </svg>
      <input ref={field} type="search" aria-label={what} placeholder={what} title={source.byWords ? `${BY_WORDS}.` : undefined}
        value={text} onFocus={() => void source.prepare()} onInput={(event) => setText(event.currentTarget.value)} />
      <kbd aria-hidden="true">/</kbd>
    </search>
  );
}

const KEYS: [string, string][] = [
  ["/", "search texts, reasons and names"],
  ["j k", "next, previous row or case"],
  ["Enter", "open"],
  ["Esc", "back, then clear the filter"],
  ["f a", "failed, all"],
  ["t", "the tree: arrows move, Enter chooses"],
  ["o", "picture or outline"],
  ["+ -", "unfold the tree, fold it to fit"],
  ["z", "the tree on the full screen"],
  ["1 … 9", "metric"],
  ["← →", "metric in the row, which Enter opens"],
  ["[ ]", "fold, unfold all prompts"],
  ["c", "columns"],
  ["g c", "cases"],
  ["g d", "compare, in dagengine view"],
  ["g l", "label, in dagengine view"],
  ["r", "the other runs, in dagengine view"],
  ["g r", "all runs, in dagengine view"],
  ["l", "label this case, in dagengine view"],
  ["x", "swap old and new, when comparing"],
  ["Shift + click", "narrow further"],
  ["Alt + click", "take these out"],
];

function Help({ close }: { close: () => void }) {
  const [on, setOn] = useState(letters.on);
  const first = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => first.current?.focus(), []);
  return (
    <section class="help" aria-label="All keys">
      <h2>Keys</h2>
      <dl class="keylist">
        {KEYS.map(([key, does]) => (
          <div key={key}><dt><kbd>{key}</kbd></dt><dd>{does}</dd></div>
        ))}
      </dl>
      <p class="chips">
        <button ref={first} class="chip0" aria-pressed={on} onClick={() => setOn((letters.on = !on))}>Letters are keys</button>
        <button class="chip0" onClick={close}>Close</button>
      </p>
    </section>
  );
}
