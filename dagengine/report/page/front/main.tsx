// Opens the source of this page and shows the screen that the address names.

import { Component, render, type ComponentChildren } from "preact";
import { Source } from "./data/engine.ts";
import { PageContext, useAddress } from "./parts/state.ts";
import { drawTogether } from "./trees/drawing.ts";
import { Frame } from "./screens/frame.tsx";
import { SCREENS } from "./screens/screens.ts";

function App({ source }: { source: Source }) {
  const page = useAddress(source);
  const screen = SCREENS.find(({ view }) => view === page.place.view) ?? SCREENS[0]!;
  return (
    <PageContext.Provider value={page}>
      <Frame><screen.show /></Frame>
    </PageContext.Provider>
  );
}

/** Says what went wrong instead of an empty page. */
class Guard extends Component<{ children: ComponentChildren }, { problem: string | null }> {
  state = { problem: null as string | null };

  static getDerivedStateFromError(error: unknown) {
    return { problem: error instanceof Error ? error.message : String(error) };
  }

  render() {
    const { problem } = this.state;
    return problem === null ? this.props.children : <Broken problem={problem} />;
  }
}

function Broken({ problem }: { problem: string }) {
  return <main><h1>This page cannot be shown</h1><p>{problem}</p></main>;
}

async function start(): Promise<void> {
  const root = document.getElementById("page")!;
  try {
    const source = await Source.open();
    root.replaceChildren();
    render(<Guard><App source={source} /></Guard>, root);
  } catch (error) {
    render(<Broken problem={error instanceof Error ? error.message : String(error)} />, root);
  }
}

drawTogether();
void start();
