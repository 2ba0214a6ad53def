import assert from "node:assert/strict";
import { test } from "vitest";
import cases from "../../tests/event_streams.json";
import { SseParser, type SseEvent } from "../src/sse";

function parse(chunks: string[]): SseEvent[] {
  const parser = new SseParser();
  return chunks.flatMap((chunk) => parser.push(chunk));
}

test("all three line ends, fields with and without a space, comments", () => {
  const events = parse(["\u003a ping\r\nid:1-1\revent: a\ndata:x\r\ndata: y\r\n\r\n", "data\n\n", "event: never\n\n"]);
  assert.deepEqual(events, [
    { type: "a", data: "x\ny", id: "1-1" },
    { type: "message", data: "", id: undefined },
  ]);
});

test("other line separators are text", () => {
  assert.deepEqual(parse(["data: a\u2028b\u2029c\u0085d\u000be\n\n"])[0]?.data, "a\u2028b\u2029c\u0085d\u000be");
});

test("an event cut off by the end is not dispatched", () => {
  assert.deepEqual(parse(["id: 1-1\ndata: x\n"]), []);
});

test("any division into chunks gives the same events", () => {
  const text = 'id: 1-1\r\nevent: delta\r\ndata: {"text":"\u{1F600} a\\r\\n"}\r\n\r\n: ping\r\rid: 1-2\rdata: b\r\rdata: c\n\n';
  const whole = parse([text]);
  assert.equal(whole.length, 3);
  for (let a = 0; a <= text.length; a += 1) {
    for (let b = a; b <= text.length; b += 1) assert.deepEqual(parse([text.slice(0, a), text.slice(a, b), text.slice(b)]), whole);
  }
  assert.deepEqual(parse([...text]), whole);
});

for (const { name, stream, events } of cases) {
  test(`the standard's corner case: ${name}`, () => {
    const bytes = Uint8Array.from(stream, (character) => character.charCodeAt(0));
    const expected = events.map(([type, data, , own]) => ({ type, data, id: own ?? undefined }));
    for (const size of [bytes.length, 1]) {
      const decoder = new TextDecoder();
      const parser = new SseParser();
      const found: SseEvent[] = [];
      for (let at = 0; at < bytes.length; at += size) found.push(...parser.push(decoder.decode(bytes.subarray(at, at + size), { stream: true })));
      assert.deepEqual(found, expected);
    }
  });
}
