import DOMPurify from "dompurify";
import { Marked, Parser, Renderer, type Token, type Tokens } from "marked";
import { footnote, footnoteMark } from "./footnotes";
import { highlight } from "./highlight";
import { blockMath, inlineMath } from "./math";

const ALLOWED_TAGS = [
  ..."a b blockquote br code del div em h1 h2 h3 h4 h5 h6 hr li ol p pre s span strong sub sup table tbody td th thead tr ul".split(" "),
  "input",
];
const ALLOWED_ATTR = ["href", "title", "class", "align", "start", "checked", "disabled", "type", "dir"];

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (char) => ESCAPES[char] ?? char);
}

/** Only addresses that name a scheme we know are links; everything else stays text. */
function safeHref(href: string): string | undefined {
  if (!/^(https?:\/\/|mailto:)/i.test(href.trim())) return undefined;
  try {
    return new URL(href.trim()).href;
  } catch {
    return undefined;
  }
}

class TextRenderer extends Renderer {
  /** Raw HTML is shown as the text it is. */
  override html(token: Tokens.HTML | Tokens.Tag): string {
    const text = escape(token.text);
    return "block" in token && token.block ? `<p class="raw">${text}</p>` : text;
  }

  override link(token: Tokens.Link): string {
    const inner = this.parser.parseInline(token.tokens);
    const href = safeHref(token.href);
    if (href === undefined) return `<span class="inert">${inner}</span>`;
    return `<a href="${escape(href)}" title="${escape(token.title || hostOf(href))}">${inner}</a>`;
  }

  /** Pictures of other hosts are never fetched by themselves: what stands here becomes a button. */
  override image(token: Tokens.Image): string {
    const href = safeHref(token.href);
    const label = escape(token.text || token.title || "");
    if (href === undefined || !/^https?:/.test(href)) return `<span class="inert">${label}</span>`;
    return `<span class="picture" title="${escape(href)}">${label}</span>`;
  }

  override code(token: Tokens.Code): string {
    const language = languageOf(token);
    const closed = isClosed(token.raw);
    const body = closed ? highlight(token.text, language.toLowerCase()) : escape(token.text);
    const kind = closed && language.toLowerCase() === "mermaid" ? "code mermaid" : "code";
    return `<div class="${kind}" dir="ltr"><div class="code-head"><span class="code-lang">${escape(language || "text")}</span></div><pre><code>${body}\n</code></pre></div>`;
  }

  override table(token: Tokens.Table): string {
    return `<div class="table">${super.table(token)}</div>`;
  }
}

export function hostOf(href: string): string {
  try {
    const url = new URL(href);
    return url.host || url.href;
  } catch {
    return href;
  }
}

function isClosed(raw: string): boolean {
  const fence = /^ {0,3}(`{3,}|~{3,})/.exec(raw)?.[1];
  if (fence === undefined) return true;
  const lines = raw.trimEnd().split("\n");
  const last = lines.at(-1)?.trim() ?? "";
  return lines.length > 1 && last.startsWith(fence) && /^(`+|~+)$/.test(last);
}

function languageOf(token: Tokens.Code): string {
  return (token.lang ?? "").trim().split(/\s+/)[0] ?? "";
}

/** Language and text of a code block whose fence is still open. */
export function openCode(token: Token): { language: string; text: string } | undefined {
  if (token.type !== "code" || isClosed(token.raw)) return undefined;
  const code = token as Tokens.Code;
  return { language: languageOf(code) || "text", text: `${code.text}\n` };
}

const marked = new Marked({ gfm: true, breaks: true, extensions: [inlineMath, blockMath, footnoteMark, footnote] });

/** The options that both the lexer and the parser work with. */
export const markdownOptions = { ...marked.defaults, renderer: new TextRenderer() };

/** The HTML of one block, not yet sanitised; two equal results need no new nodes. */
export function blockHtml(token: Token): string {
  return Parser.parse([token], markdownOptions).trimEnd();
}

/** Sanitised nodes for a block's HTML. */
export function blockNodes(html: string): DocumentFragment {
  const fragment = DOMPurify.sanitize(html, { ALLOWED_TAGS, ALLOWED_ATTR, ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, RETURN_DOM_FRAGMENT: true });
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  for (const box of fragment.querySelectorAll("input")) {
    box.disabled = true;
    box.type = "checkbox";
  }
  for (const block of fragment.children) if (!block.hasAttribute("dir")) block.setAttribute("dir", "auto");
  for (const scroller of fragment.querySelectorAll<HTMLElement>("pre, .table")) scroller.tabIndex = 0;
  return fragment;
}
