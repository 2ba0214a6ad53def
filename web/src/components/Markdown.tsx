import { effect, signal, type ReadonlySignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Playout, wholeLength } from "../markdown/pace";
import { drawingTurns } from "../markdown/turns";
import type { MarkdownView } from "../markdown/view";

type Engine = typeof import("../markdown/view");

/** The markdown code comes after the first paint; until then texts are shown as they are. */
const engine = signal<Engine | null>(null);

export async function loadMarkdown(): Promise<void> {
  for (let delay = 1000; engine.value === null; delay = Math.min(delay * 2, 15_000)) {
    try {
      engine.value = await import("../markdown/view");
    } catch {
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }
}

const calm = matchMedia("(prefers-reduced-motion: reduce)");
/** Drawing may take this share of the time; where it takes longer, fewer frames are drawn. */
const BUSY_SHARE = 0.5;

/** Draws a growing text once per frame, a little behind the data, so that bursts look smooth. Returns what ends it. */
function drawGrowing(drawing: MarkdownView, text: ReadonlySignal<string>): () => void {
  const playout = new Playout();
  let frame = 0;
  let restUntil = 0;
  let first = true;
  const paint = (now: number) => {
    frame = 0;
    const whole = text.peek();
    if (now < restUntil && !document.hidden) {
      frame = requestAnimationFrame(paint);
      return;
    }
    if (first || calm.matches || document.hidden) playout.catchUp();
    first = false;
    const length = wholeLength(whole, playout.lengthAt(now));
    drawing.grow(length < whole.length ? whole.slice(0, length) : whole);
    restUntil = now + (performance.now() - now) / BUSY_SHARE;
    if (length < whole.length) frame = requestAnimationFrame(paint);
  };
  const stop = effect(() => {
    playout.came(text.value.length, performance.now());
    if (document.hidden || first) return paint(performance.now());
    if (frame === 0) frame = requestAnimationFrame(paint);
  });
  return () => {
    stop();
    cancelAnimationFrame(frame);
  };
}

/** Draws a finished text when its turn comes. Returns what ends it. */
function drawFinished(drawing: MarkdownView, text: ReadonlySignal<string>): () => void {
  let giveUp: (() => void) | undefined;
  drawing.outline(text.peek());
  const stop = effect(() => {
    giveUp?.();
    giveUp = drawingTurns.add(drawing.finish(text.value));
  });
  return () => {
    stop();
    giveUp?.();
  };
}

/** A markdown text that may still grow; it is drawn outside the component tree. */
export function Markdown({ text, live }: { text: ReadonlySignal<string>; live: boolean }) {
  const root = useRef<HTMLDivElement>(null);
  const view = useRef<MarkdownView>(undefined);
  const code = engine.value;

  useLayoutEffect(() => {
    const element = root.current;
    if (!element) return undefined;
    if (code === null) return effect(() => void (element.textContent = text.value));
    if (!view.current) {
      element.replaceChildren(); // what stood there until the code came
      view.current = new code.MarkdownView(element);
    }
    return live ? drawGrowing(view.current, text) : drawFinished(view.current, text);
  }, [text, live, code]);

  return <div ref={root} class={`prose${live ? " live" : ""}${code === null ? " plain" : ""}`} />;
}
