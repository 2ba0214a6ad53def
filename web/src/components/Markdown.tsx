import { effect, signal, type ReadonlySignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { copyText } from "../clipboard";
import { nextLength } from "../markdown/pace";
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

async function copyCode(event: MouseEvent): Promise<void> {
  const button = event.target;
  if (!(button instanceof HTMLButtonElement) || !button.classList.contains("code-copy")) return;
  const code = button.closest(".code")?.querySelector("code")?.textContent ?? "";
  const copied = await copyText(code.replace(/\n$/, ""));
  button.textContent = copied ? "Copied" : "Press Ctrl+C";
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

/** A markdown text that may still grow; growth is painted once per frame, outside the component tree. */
export function Markdown({ text, live }: { text: ReadonlySignal<string>; live: boolean }) {
  const root = useRef<HTMLDivElement>(null);
  const view = useRef<MarkdownView>(undefined);
  const shown = useRef(0);
  const code = engine.value;

  useLayoutEffect(() => {
    const element = root.current;
    if (!element) return undefined;
    if (code === null) return effect(() => void (element.textContent = text.value));
    if (!view.current) {
      element.replaceChildren();
      view.current = new code.MarkdownView(element);
    }
    const drawing = view.current;
    let frame = 0;
    let last = performance.now();
    let first = true;
    const paint = (now: number) => {
      frame = 0;
      const whole = text.peek();
      const length = first || calm.matches || document.hidden ? whole.length : nextLength(whole, shown.current, Math.max(8, now - last));
      first = false;
      last = now;
      shown.current = length;
      drawing.render(whole.slice(0, length), false);
      if (length < whole.length) frame = requestAnimationFrame(paint);
    };
    const stop = effect(() => {
      const whole = text.value;
      if (!live) {
        drawing.render(whole, true);
        return;
      }
      if (document.hidden || first) {
        paint(performance.now());
        return;
      }
      if (shown.current > whole.length) shown.current = whole.length;
      if (frame === 0) {
        last = Math.max(last, performance.now() - 32);
        frame = requestAnimationFrame(paint);
      }
    });
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [text, live, code]);

  return <div ref={root} class={`prose${live ? " live" : ""}${code === null ? " plain" : ""}`} onClick={(event) => void copyCode(event)} />;
}
