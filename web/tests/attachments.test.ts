import assert from "node:assert/strict";
import fc from "fast-check";
import { test } from "vitest";
import { isLong, lineCount, makeAttachment, splitAttachments, withAttachments } from "../src/state/attachments";

const NAME = fc.string({ minLength: 1, maxLength: 20 }).map((name) => name.replace(/[\n\r`]/g, "") || "x");
const BODY = fc.array(fc.constantFrom("word ", "\n", "```", "````", "`````js\n", "text ", "🙂", "| a |\n"), { maxLength: 30 }).map((parts) => parts.join(""));

test("what is put together comes apart again", () => {
  fc.assert(
    fc.property(fc.constantFrom("", "What is this?", "two\nlines"), fc.array(fc.tuple(NAME, BODY), { maxLength: 3 }), (text, files) => {
      const attached = files.map(([name, body]) => makeAttachment(name, body));
      const split = splitAttachments(withAttachments(text, attached));
      assert.equal(split.text, text);
      assert.deepEqual(
        split.attached.map(({ name, text: body }) => [name, body]),
        attached.map(({ name, text: body }) => [name, body]),
      );
    }),
    { numRuns: 500 },
  );
});

test("a message without attachments is itself", () => {
  for (const text of ["", "hello", "```js\ncode\n```", "````text\nno name\n````"]) assert.deepEqual(splitAttachments(withAttachments(text, [])), { text, attached: [] });
});

test("long is long by characters or by lines", () => {
  assert.ok(!isLong("x".repeat(8000)));
  assert.ok(isLong("x".repeat(8001)));
  assert.ok(!isLong("\n".repeat(199)));
  assert.ok(isLong("\n".repeat(200)));
  assert.equal(lineCount("a\nb"), 2);
});
