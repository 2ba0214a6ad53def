import { Lexer, type Token } from "marked";
import { markdownOptions } from "./render";

/** One top-level block of a text: its source and its lexed form. */
export interface Block {
  readonly raw: string;
  readonly token: Token;
}

/** Blocks that more text cannot change stay frozen; the last ones are lexed again with each addition. */
const LIVE_BLOCKS = 2;

/**
 * Splits a growing markdown text into top-level blocks, lexing only the part that can still change.
 *
 * A block is frozen once an empty line and `LIVE_BLOCKS` later blocks follow it: nothing that is still open (a formula, a table, a
 * heading's underline) reaches back over an empty line, but what the lexer takes as one block anyway. Reference definitions that
 * come later reach frozen blocks only through `whole`, which lexes everything once, at the end.
 */
export class BlockSplitter {
  private frozen: Block[] = [];
  private source = "";
  private frozenLength = 0;

  /** The blocks of `text`. The result's first `frozenCount` blocks are the same objects as in earlier calls. */
  update(text: string): { blocks: Block[]; frozenCount: number } {
    const source = normalise(text);
    if (!source.startsWith(this.source.slice(0, this.frozenLength))) {
      this.frozen = [];
      this.frozenLength = 0;
    }
    this.source = source;
    const live = lex(source.slice(this.frozenLength));
    for (const block of live.splice(0, this.settled(source, live))) {
      this.frozen.push(block);
      this.frozenLength += block.raw.length;
    }
    return { blocks: [...this.frozen, ...live], frozenCount: this.frozen.length };
  }

  /** How many of the blocks that were lexed anew can no longer change: up to the last empty line that has enough blocks after it. */
  private settled(source: string, live: readonly Block[]): number {
    let count = 0;
    let at = this.frozenLength;
    for (const [index, block] of live.slice(0, -LIVE_BLOCKS).entries()) {
      // The lexer tidies a few sources (a bare list mark at the end); what is not the text itself cannot be counted off it.
      if (!source.startsWith(block.raw, at)) break;
      at += block.raw.length;
      if (/\n[ \t]*\n$/.test(block.raw)) count = index + 1;
    }
    return count;
  }

  /** The blocks of a text that will not grow. */
  static whole(text: string): Block[] {
    return lex(normalise(text));
  }
}

function normalise(text: string): string {
  return text.replace(/\r\n?/g, "\n");
}

/** Top-level tokens; white space between blocks is counted to the block before it. */
function lex(source: string): Block[] {
  const blocks: { raw: string; token: Token }[] = [];
  for (const token of new Lexer(markdownOptions).lex(source)) {
    const last = blocks.at(-1);
    if (token.type === "space" && last) last.raw += token.raw;
    else blocks.push({ raw: token.raw, token });
  }
  return blocks;
}
