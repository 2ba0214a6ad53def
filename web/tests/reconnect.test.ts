import assert from "node:assert/strict";
import { test } from "vitest";
import { ReconnectDelay } from "../src/reconnect";

/** The waits until `seconds` have been waited in all. */
function waits(delay: ReconnectDelay, seconds: number): number[] {
  const list: number[] = [];
  for (let sum = 0; sum < seconds * 1000; sum += list.at(-1) ?? 0) list.push(delay.next(undefined));
  return list;
}

test("while a server may be restarting no wait is longer than 0.8 s; then they double to 15 s", () => {
  const list = waits(new ReconnectDelay(() => 1), 60);
  assert.deepEqual(list.slice(0, 3), [400, 800, 800]);
  let sum = 0;
  for (const wait of list) {
    if (sum < 7200) assert.ok(wait <= 800, `${wait} after ${sum}`);
    sum += wait;
  }
  assert.deepEqual(list.slice(-2), [15_000, 15_000]);
});

test("a wait is never shorter than a quarter of its ceiling", () => {
  assert.deepEqual(waits(new ReconnectDelay(() => 0), 0.5).slice(0, 3), [100, 200, 200]);
});

test("an event starts it anew", () => {
  const delay = new ReconnectDelay(() => 1);
  waits(delay, 40);
  delay.heard();
  assert.equal(delay.failures, 0);
  assert.equal(delay.next(undefined), 400);
});

test("what the server asks for is kept, and waiting for nothing comes to an end as well", () => {
  const delay = new ReconnectDelay(() => 1);
  assert.equal(delay.next(5000), 5000);
  for (let count = 0; count < 60; count += 1) assert.equal(delay.next(0), 0);
  assert.ok(delay.next(undefined) <= 1600);
  assert.ok(waits(delay, 40).includes(15_000));
});
