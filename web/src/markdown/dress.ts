import { copyText } from "../clipboard";
import { t, type Key } from "../i18n";
import { makeFrame } from "./frame";
import { drawMath } from "./math";
import { hostOf } from "./render";

/** What a block's nodes get that markdown cannot bring: buttons, formulas, diagrams, pictures on demand. */

const LONG_LINES = 40;

function button(key: Key, className: string, run: (button: HTMLButtonElement) => void): HTMLButtonElement {
  const made = document.createElement("button");
  made.type = "button";
  made.className = className;
  made.textContent = t(key);
  made.addEventListener("click", () => run(made));
  return made;
}

async function copyFrom(made: HTMLButtonElement, text: string): Promise<void> {
  made.textContent = (await copyText(text)) ? t("copied") : t("copyRefused");
  setTimeout(() => (made.textContent = t("copy")), 2000);
}

function codeOf(block: Element): string {
  return (block.querySelector("code")?.textContent ?? "").replace(/\n$/, "");
}

const SUFFIXES: Record<string, string> = { python: "py", javascript: "js", typescript: "ts", bash: "sh", shell: "sh", rust: "rs", ruby: "rb", markdown: "md", text: "txt" };

function download(block: Element): void {
  const language = (block.querySelector(".code-lang")?.textContent ?? "txt").toLowerCase().replace(/[^a-z0-9+#-]/g, "");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([codeOf(block)], { type: "text/plain" }));
  link.download = `code.${SUFFIXES[language] ?? (language || "txt")}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function dressCode(block: HTMLElement): void {
  const head = block.querySelector(".code-head");
  const pre = block.querySelector("pre");
  if (!head || !pre || head.querySelector("button")) return;
  const wrap = button("wrap", "code-tool", (made) => made.setAttribute("aria-pressed", String(block.classList.toggle("wrapped"))));
  wrap.setAttribute("aria-pressed", "false");
  const tools = document.createElement("span");
  tools.className = "code-tools";
  tools.append(wrap);
  if (codeOf(block).split("\n").length > LONG_LINES) tools.append(button("download", "code-tool", () => download(block)));
  tools.append(button("copy", "code-tool code-copy", (made) => void copyFrom(made, codeOf(block))));
  head.append(tools);
  pre.setAttribute("aria-label", t("code"));
}

/** A diagram's frame is made when it comes near the screen; its source is one press away. */
function dressDiagram(block: HTMLElement): void {
  const pre = block.querySelector("pre");
  const tools = block.querySelector(".code-tools");
  if (!pre || !tools) return;
  const toggle = button("showSource", "code-tool", (made) => {
    const source = block.classList.toggle("as-source");
    made.textContent = source ? t("showDiagram") : t("showSource");
  });
  const observer = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      const frame = makeFrame("diagram", {
        source: codeOf(block),
        label: t("diagram"),
        failed: () => {
          frame.remove();
          toggle.remove();
          block.classList.remove("drawn");
        },
      });
      block.classList.add("drawn");
      tools.prepend(toggle);
      pre.before(frame);
    },
    { rootMargin: "300px" },
  );
  observer.observe(block);
}

function dressTable(block: HTMLElement): void {
  const copy = button("copy", "table-copy", (made) => {
    const rows = [...block.querySelectorAll("tr")].map((row) => [...row.children].map((cell) => (cell.textContent ?? "").trim()).join("\t"));
    void copyFrom(made, rows.join("\n"));
  });
  copy.setAttribute("aria-label", t("copyTable"));
  block.setAttribute("aria-label", t("table"));
  block.setAttribute("role", "group");
  block.after(copy);
}

/** Loads a picture of another host only after a click, in a frame of its own. */
function dressPicture(span: HTMLElement): void {
  const source = span.title;
  const label = span.textContent || t("picture");
  const load = button("picture", "picture", () => {
    const frame = makeFrame("picture", { source, label, failed: () => frame.replaceWith(load) });
    load.replaceWith(frame);
  });
  load.textContent = t("loadPicture", label, hostOf(source));
  load.title = source;
  span.replaceWith(load);
}

/** A footnote's mark leads to the note, where it is. */
function dressMark(mark: HTMLElement): void {
  const label = mark.textContent ?? "";
  const made = document.createElement("button");
  made.type = "button";
  made.className = "link";
  made.textContent = label;
  made.setAttribute("aria-label", t("footnote", label));
  made.addEventListener("click", () => {
    const notes = [...(mark.closest(".prose")?.querySelectorAll<HTMLElement>(".footnote") ?? [])];
    notes.find((note) => note.querySelector("sup")?.textContent === label)?.scrollIntoView({ block: "center" });
  });
  mark.replaceChildren(made);
}

export function dress(root: HTMLElement): void {
  for (const mark of root.querySelectorAll<HTMLElement>("sup.note-mark")) dressMark(mark);
  for (const block of root.querySelectorAll<HTMLElement>(".code")) dressCode(block);
  for (const block of root.querySelectorAll<HTMLElement>(".code.mermaid")) dressDiagram(block);
  for (const block of root.querySelectorAll<HTMLElement>("div.table")) dressTable(block);
  for (const span of root.querySelectorAll<HTMLElement>("span.picture")) dressPicture(span);
  for (const box of root.querySelectorAll<HTMLInputElement>("input[type=checkbox]")) box.setAttribute("aria-label", box.checked ? t("taskDone") : t("taskOpen"));
  drawMath(root);
}
