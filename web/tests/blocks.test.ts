import assert from "node:assert/strict";
import fc from "fast-check";
import { test } from "vitest";
import { BlockSplitter, type Block } from "../src/markdown/blocks";
import { blockHtml } from "../src/markdown/render";
import { CORPUS, PIECES } from "./corpus";

const DEFINITION = /^ {0,3}\[[^\]]+\]:/m;

/** Feeds every prefix in `steps` to one splitter and holds what it promises at each of them. */
function hold(text: string, steps: readonly number[]): void {
  const splitter = new BlockSplitter();
  let frozen: Block[] = [];
  let html: string[] = [];
  for (const length of steps) {
    const prefix = text.slice(0, length);
    const { blocks, frozenCount } = splitter.update(prefix);
    const raw = blocks.slice(0, frozenCount).map((block) => block.raw).join("");
    assert.ok(prefix.replace(/\r\n?/g, "\n").startsWith(raw), "what is frozen is the text's beginning");
    assert.ok(frozenCount >= frozen.length, "what is frozen stays frozen");
    frozen.forEach((block, at) => assert.equal(blocks[at], block, "a frozen block is the same object"));
    html.forEach((one, at) => assert.equal(blockHtml((frozen[at] as Block).token), one, "a frozen block looks the same"));
    frozen = blocks.slice(0, frozenCount);
    html = frozen.map((block) => blockHtml(block.token));
  }
  if (DEFINITION.test(text)) return;
  const whole = BlockSplitter.whole(text).map((block) => blockHtml(block.token));
  const grown = splitter.update(text).blocks.map((block) => blockHtml(block.token));
  assert.deepEqual(grown, whole, "a grown text looks like one that came at once");
}

function everyPrefix(text: string): number[] {
  return Array.from({ length: text.length }, (_, at) => at + 1);
}

test.each(CORPUS.map((text, at) => [at, text] as const))("frozen blocks never change, at every prefix of text %i", (_at, text) => {
  hold(text, everyPrefix(text));
});

test("frozen blocks never change, at every prefix of the whole corpus", () => {
  hold(CORPUS.filter((text) => !text.startsWith("```\nan open")).join("\n\n"), everyPrefix(CORPUS.filter((text) => !text.startsWith("```\nan open")).join("\n\n")));
});

test("frozen blocks never change, for random texts in random chunks", () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...PIECES), { maxLength: 40 }), fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 20 }), (pieces, sizes) => {
      const text = pieces.join("");
      const steps: number[] = [];
      for (let at = 0, turn = 0; at < text.length; turn += 1) {
        at = Math.min(text.length, at + (sizes[turn % sizes.length] as number));
        steps.push(at);
      }
      hold(text, steps);
    }),
    { numRuns: 1000 },
  );
});
