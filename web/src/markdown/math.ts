import type { TokenizerAndRendererExtension, Tokens } from "marked";

interface MathToken extends Tokens.Generic {
  type: "math";
  text: string;
  display: boolean;
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (char) => ESCAPES[char] ?? char);
}

function html({ text, display }: MathToken): string {
  return display ? `<code class="math display">${escape(text)}</code>` : `<code class="math">${escape(text)}</code>`;
}

/**
 * Whether a text between two dollar signs is an amount of money: it begins with a figure and has none of the marks that only
 * formulas have.
 */
export function isMoney(text: string): boolean {
  return /^\d/.test(text) && !/[\\^_={}<>+*]/.test(text) && /[\s,;:–—-]|\d[kKmMbB]\b/.test(text);
}

const PARENTHESES = /^\\\(((?:[^\\]|\\(?!\)))+?)\\\)/;
const DISPLAY = /^\$\$((?:[^$\\]|\\[^])+?)\$\$/;
const DOLLARS = /^\$(?![\s$])((?:[^$\\\n]|\\[^\n])*?)(?<!\s)\$(?![\p{L}\p{N}])/u;
const BLOCK = /^ {0,3}(?:\$\$((?:(?!\n[ \t]*\n)[^$])+?)\$\$|\\\[((?:(?!\n[ \t]*\n)[^])+?)\\\])[ \t]*(?:\n|$)/;

function made(raw: string, text: string, display: boolean): MathToken {
  return { type: "math", raw, text: text.trim(), display };
}

/** `\(…\)`, `$…$` and `$$…$$` inside a line. A dollar sign that could be money is text. */
export const inlineMath: TokenizerAndRendererExtension = {
  name: "math",
  level: "inline",
  start: (source) => {
    const at = source.search(/\$|\\\(/);
    return at < 0 ? undefined : at;
  },
  tokenizer: (source) => {
    const parentheses = PARENTHESES.exec(source);
    if (parentheses) return made(parentheses[0], parentheses[1] ?? "", false);
    const display = DISPLAY.exec(source);
    if (display) return made(display[0], display[1] ?? "", true);
    const dollars = DOLLARS.exec(source);
    const text = dollars?.[1] ?? "";
    return dollars && text !== "" && !isMoney(text) ? made(dollars[0], text, false) : undefined;
  },
  renderer: (token) => html(token as MathToken),
};

/** `$$…$$` and `\[…\]` that stand alone. They end at an empty line, so that an open one cannot swallow what follows. */
export const blockMath: TokenizerAndRendererExtension = {
  name: "mathBlock",
  level: "block",
  start: (source) => {
    const at = source.search(/(?:^|\n) {0,3}(?:\$\$|\\\[)/);
    return at < 0 ? undefined : at;
  },
  tokenizer: (source) => {
    const found = BLOCK.exec(source);
    return found ? { ...made(found[0], found[1] ?? found[2] ?? "", true), type: "mathBlock" } : undefined;
  },
  renderer: (token) => `<p>${html(token as unknown as MathToken)}</p>`,
};

type Draw = typeof import("./katex").draw;
let draw: Draw | undefined;
let loading: Promise<void> | undefined;

/** Turns the formulas under `root` from their source into drawings; the code for that comes with the first formula. */
export function drawMath(root: ParentNode): void {
  const formulas = root.querySelectorAll<HTMLElement>("code.math");
  if (formulas.length === 0) return;
  if (draw) {
    for (const formula of formulas) draw(formula);
    return;
  }
  const waiting = [...formulas];
  loading ??= import("./katex").then(
    (found) => void (draw = found.draw),
    () => void (loading = undefined),
  );
  void loading.then(() => {
    for (const formula of waiting) if (formula.isConnected) draw?.(formula);
  });
}
