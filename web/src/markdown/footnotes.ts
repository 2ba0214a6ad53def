import type { TokenizerAndRendererExtension, Tokens } from "marked";

interface NoteToken extends Tokens.Generic {
  label: string;
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (char) => ESCAPES[char] ?? char);
}

const MARK = /^\[\^([^\]\s^]{1,40})\]/;
const NOTE = /^\[\^([^\]\s^]{1,40})\]:[ \t]*([^\n]*(?:\n(?![ \t]*(?:\n|\[\^))[^\n]+)*)(?:\n|$)/;

/** `[^1]` in a text. Each mark and each note stands for itself, so that neither changes what is above it. */
export const footnoteMark: TokenizerAndRendererExtension = {
  name: "footnoteMark",
  level: "inline",
  start: (source) => {
    const at = source.indexOf("[^");
    return at < 0 ? undefined : at;
  },
  tokenizer(source): NoteToken | undefined {
    const [raw, label] = MARK.exec(source) ?? [];
    return raw && label ? { type: "footnoteMark", raw, label } : undefined;
  },
  renderer: (token) => `<sup class="note-mark">${escape((token as NoteToken).label)}</sup>`,
};

/** `[^1]: …` at the beginning of a line. */
export const footnote: TokenizerAndRendererExtension = {
  name: "footnote",
  level: "block",
  start: (source) => /^\[\^[^\]\s^]{1,40}\]:/m.exec(source)?.index,
  tokenizer(source): NoteToken | undefined {
    const [raw, label, text] = NOTE.exec(source) ?? [];
    if (!raw || !label) return undefined;
    return { type: "footnote", raw, label, tokens: this.lexer.inline(text ?? "") };
  },
  renderer(token) {
    return `<p class="footnote"><sup>${escape((token as NoteToken).label)}</sup> ${this.parser.parseInline(token.tokens ?? [])}</p>`;
  },
};
