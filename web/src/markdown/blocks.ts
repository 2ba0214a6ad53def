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
 * A block is frozen once `LIVE_BLOCKS` later blocks exist; reference definitions that come later reach frozen blocks only
 * through `whole`, which lexes everything once, at the end.
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
    while (live.length > LIVE_BLOCKS) {
      const block = live.shift();
      if (block === undefined) break;
      this.frozen.push(block);
      this.frozenLength += block.raw.length;
    }
    return { blocks: [...this.frozen, ...live], frozenCount: this.frozen.length };
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
