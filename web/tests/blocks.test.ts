import assert from "node:assert/strict";
import { test } from "vitest";
import { Parser } from "marked";
import { BlockSplitter, type Block } from "../src/markdown/blocks";
import { nextLength } from "../src/markdown/pace";

const CORPUS = [
  "# Title\n\nA paragraph with *emphasis*,\nover two lines.\n\n- one\n- two\n\n  still two\n- three\n\n```py\nx = 1\n\n# not a heading\n```\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n> quote\n> more\n\nend",
  "Setext\n======\n\ntext\n---\n\n1. a\n   - b\n     1. c\n\n        code\n2. d\n\n***\n\n<div>\nhtml\n</div>\n\nlast\r\nline\r\n\r\n    indented\n",
  "~~~\nunclosed fence\n\nwith blank lines",
  "- [ ] a\n- [x] b\n\nText\n\n\n\n\nmore\n\n* other list\n\n+ yet another\n",
  "\n\n  leading space\n\n```\nfirst\n```\n```\nsecond\n```\ntext right after",
];

function html(blocks: readonly Block[]): string {
  return blocks.map((block) => Parser.parse([block.token])).join("");
}

test("growing by any step ends in the blocks of the whole text", () => {
  for (const text of CORPUS) {
    for (const step of [1, 2, 3, 7, 40]) {
      const splitter = new BlockSplitter();
      let blocks: Block[] = [];
      for (let end = 0; end < text.length; end += step) blocks = splitter.update(text.slice(0, end)).blocks;
      blocks = splitter.update(text).blocks;
      assert.equal(html(blocks), html(BlockSplitter.whole(text)));
    }
  }
});

test("frozen blocks stay the same objects", () => {
  for (const text of CORPUS) {
    const splitter = new BlockSplitter();
    let frozen: Block[] = [];
    for (let end = 0; end <= text.length; end += 1) {
      const { blocks, frozenCount } = splitter.update(text.slice(0, end));
      frozen.forEach((block, at) => assert.equal(blocks[at], block));
      frozen = blocks.slice(0, frozenCount);
    }
  }
});

test("a text that is replaced starts anew", () => {
  const splitter = new BlockSplitter();
  splitter.update("a\n\nb\n\nc\n\nd\n");
  assert.equal(html(splitter.update("z").blocks), "<p>z</p>\n");
});

test("pacing reaches the end and never splits a surrogate pair", () => {
  const text = "\u{1F600}".repeat(50);
  let shown = 0;
  for (let frames = 0; shown < text.length; frames += 1) {
    assert.ok(frames < 200);
    shown = nextLength(text, shown, 16);
    assert.equal(shown % 2, 0);
  }
});
