/** Frames without an origin, for what the page itself must not run or load: diagrams, and pictures of other hosts. */

interface FrameJob {
  source: string;
  label: string;
  failed(): void;
}

function isDark(): boolean {
  return getComputedStyle(document.documentElement).colorScheme === "dark" || (document.documentElement.dataset["theme"] !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

/** A pressed picture fills the screen; pressing it again, or Esc, ends that. */
async function zoom(frame: HTMLIFrameElement): Promise<void> {
  if (document.fullscreenElement === frame) return document.exitFullscreen();
  frame.onfullscreenchange = () => frame.contentWindow?.postMessage({ kind: "zoom", on: document.fullscreenElement === frame }, "*");
  await frame.requestFullscreen().catch(() => undefined);
}

/** A frame that draws one thing and takes its height from it. */
export function makeFrame(kind: "diagram" | "picture", job: FrameJob): HTMLIFrameElement {
  const frame = document.createElement("iframe");
  frame.className = `frame ${kind}`;
  frame.setAttribute("sandbox", "allow-scripts");
  frame.referrerPolicy = "no-referrer";
  frame.title = job.label;
  frame.src = `/frame/${kind}.html`;
  const listen = (event: MessageEvent<{ kind?: string; height?: number }>) => {
    if (frame.dataset["drawn"] !== undefined && !frame.isConnected) removeEventListener("message", listen);
    if (event.source !== frame.contentWindow || event.source === null) return;
    if (event.data.kind === "ready") frame.contentWindow?.postMessage({ kind: "draw", source: job.source, label: job.label, dark: isDark() }, "*");
    if (event.data.kind === "drawn" && typeof event.data.height === "number") {
      frame.style.height = `${Math.max(24, Math.min(4000, event.data.height))}px`;
      frame.dataset["drawn"] = "";
    }
    if (event.data.kind === "pressed") void zoom(frame);
    if (event.data.kind === "failed" || (event.data.kind === "drawn" && kind === "diagram")) removeEventListener("message", listen);
    if (event.data.kind === "failed") job.failed();
  };
  addEventListener("message", listen);
  return frame;
}
