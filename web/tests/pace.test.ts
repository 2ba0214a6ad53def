import assert from "node:assert/strict";
import fc from "fast-check";
import { test } from "vitest";
import { LAG_MS, Playout, wholeLength } from "../src/markdown/pace";

const bursts = fc.array(fc.record({ gap: fc.integer({ min: 1, max: 400 }), letters: fc.integer({ min: 1, max: 80 }) }), { minLength: 1, maxLength: 30 });

test("nothing is shown before it came, after its time, or taken back", () => {
  fc.assert(
    fc.property(bursts, fc.integer({ min: 4, max: 40 }), (list, frame) => {
      const playout = new Playout();
      const came: [number, number][] = [];
      let now = 0;
      let length = 0;
      let shown = 0;
      const paint = (at: number) => {
        const next = playout.lengthAt(at);
        assert.ok(next >= shown, "it only grows");
        assert.ok(next <= length, "nothing before it came");
        for (const [when, long] of came) if (at >= when + LAG_MS) assert.ok(next >= long, `late: ${next} of ${long}`);
        shown = next;
      };
      for (const { gap, letters } of list) {
        const until = now + gap;
        for (let at = now; at < until; at += frame) paint(at);
        now = until;
        length += letters;
        came.push([now, length]);
        playout.came(length, now);
      }
      for (let at = now; at <= now + LAG_MS + frame; at += frame) paint(at);
      assert.equal(shown, length);
    }),
  );
});

test("even bursts are shown evenly", () => {
  const playout = new Playout();
  const steps: number[] = [];
  let shown = 0;
  for (let now = 0; now < 2000; now += 8) {
    if (now % 40 === 0) playout.came((now / 40 + 1) * 20, now);
    const next = playout.lengthAt(now);
    if (now > 400) steps.push(next - shown);
    shown = next;
  }
  assert.ok(Math.max(...steps) <= 5 && Math.min(...steps) >= 3, steps.join(" "));
});

test("a text that is taken back is played from its new length", () => {
  const playout = new Playout();
  playout.came(100, 0);
  playout.came(10, 20);
  assert.equal(playout.lengthAt(20), 10);
  playout.came(30, 40);
  assert.equal(playout.lengthAt(40 + LAG_MS), 30);
});

test("a surrogate pair is never cut in two", () => {
  assert.equal(wholeLength("a\u{1F600}b", 2), 3);
  assert.equal(wholeLength("a\u{1F600}b", 1), 1);
  assert.equal(wholeLength("", 0), 0);
});
