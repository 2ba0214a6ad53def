import assert from "node:assert/strict";
import { test } from "vitest";
import { BlockSplitter } from "../src/markdown/blocks";
import { isMoney } from "../src/markdown/math";
import { blockHtml } from "../src/markdown/render";

function html(text: string): string {
  return BlockSplitter.whole(text)
    .map((block) => blockHtml(block.token))
    .join("");
}

test.each([
  "It costs $4 or $5.",
  "between $4 and $5 a piece",
  "from $4-$5 to $6/$7",
  "($4), ($5)",
  "$1,000 and $2,000",
  "$5k then $6k",
  "US$5 and A$6",
  "$HOME and $PATH",
  "a $ b $ c",
  "$20 off, $30 off, and $40 no",
  "the price is $3.50, not $3.60!",
  "$4",
  "100$ and 200$",
  "`$x$` in code",
])("money and dollars stay text: %s", (text) => {
  assert.ok(!html(text).includes('class="math'), html(text));
});

test.each([
  ["$x^2$", "x^2"],
  ["$a+b$ is it", "a+b"],
  ["so \\(a_1\\), and", "a_1"],
  ["$2x + 1 = 5$", "2x + 1 = 5"],
  ["$\\alpha$-decay", "\\alpha"],
  ["inline $$e = mc^2$$ here", "e = mc^2"],
  ["a price of $4, and $n^2$ items", "n^2"],
])("formulas are formulas: %s", (text, formula) => {
  assert.ok(html(text).includes(`>${formula}</code>`), html(text));
});

test.each(["$$\nx < y\n$$", "\\[\nx < y\n\\]", "$$x < y$$"])("a formula may stand alone: %s", (text) => {
  assert.ok(html(text).includes('<code class="math display">x &lt; y</code>'), html(text));
});

test("a formula that is still open is text, and swallows nothing", () => {
  assert.ok(!html("$$\n\\frac{1}{").includes("math"));
  assert.ok(html("$$\nopen\n\n# Title").includes("<h1>"));
});

test("only what begins with a figure and has no sign of a formula is money", () => {
  assert.ok(isMoney("4 to "));
  assert.ok(!isMoney("x to y"));
  assert.ok(!isMoney("2x+1"));
});
