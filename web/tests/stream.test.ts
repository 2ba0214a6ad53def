import assert from "node:assert/strict";
import { test } from "vitest";
import { GenerationStream, type StreamWorld } from "../src/stream";

interface Entry {
  kind: string;
  data: object;
}

/** A server with one finished log, that cuts, repeats and skips as it is told. */
class Server implements StreamWorld {
  cursors: (string | undefined)[] = [];
  time = 0;
  private readonly timers = new Map<number, () => void>();
  private nextTimer = 1;

  constructor(private readonly answer: (after: number, call: number) => Response | Promise<Response>) {}

  async fetch(_url: string, init: RequestInit): Promise<Response> {
    const cursor = (init.headers as Record<string, string>)["Last-Event-ID"];
    this.cursors.push(cursor);
    if (this.cursors.length > 500) throw new Error("too many connections");
    const answer = await this.answer(cursor === undefined ? 0 : Number(cursor.split("-").at(-1)), this.cursors.length);
    return abortable(answer, init.signal ?? undefined);
  }

  setTimeout(run: () => void, ms: number): number {
    const handle = this.nextTimer;
    this.nextTimer += 1;
    if (ms < 40_000) {
      this.timers.set(handle, run);
      setImmediate(() => {
        if (this.timers.delete(handle)) run();
      });
    }
    return handle;
  }

  clearTimeout(handle: unknown): void {
    this.timers.delete(handle as number);
  }

  random(): number {
    return 0.5;
  }

  now(): number {
    return this.time;
  }
}

/** As `fetch` does it: an abort breaks the body that is being read. */
function abortable(response: Response, signal: AbortSignal | undefined): Response {
  if (!signal || !response.body) return response;
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  void response.body.pipeTo(writable, { signal }).catch(() => undefined);
  return new Response(readable, { status: response.status });
}

function frame(seq: number, entry: Entry): string {
  return `id: 1-${seq}\nevent: ${entry.kind}\ndata: ${JSON.stringify(entry.data)}\n\n`;
}

function body(text: string, chunk = 7): Response {
  const bytes = new TextEncoder().encode(text);
  return new Response(
    new ReadableStream({
      start(controller) {
        for (let at = 0; at < bytes.length; at += chunk) controller.enqueue(bytes.slice(at, at + chunk));
        controller.close();
      },
    }),
    { status: 200 },
  );
}

interface Outcome {
  text: string;
  texts: string[];
  end: string;
}

function play(server: Server): Promise<Outcome> {
  return new Promise((resolve) => {
    const texts: string[] = [];
    const finish = (end: string) => resolve({ text: texts.at(-1) ?? "", texts, end });
    new GenerationStream(
      "/stream",
      {
        text: (text) => texts.push(text),
        status: () => undefined,
        meta: () => undefined,
        reasoning: () => undefined,
        sources: () => undefined,
        title: () => undefined,
        connection: () => undefined,
        done: (data) => finish(`done ${data.finish_reason}`),
        error: (data) => finish(`error ${data.code}`),
        lost: (status) => finish(`lost ${status}`),
      },
      server,
    ).start();
  });
}

const WORDS = ["Grüße ", "\u{1F600}\u{1F3FD} ", "a\r\nb", "\u2028", "data: x\n\n", "the end"];
const LOG: Entry[] = [
  { kind: "meta", data: {} },
  ...WORDS.map((text) => ({ kind: "delta", data: { text } })),
  { kind: "done", data: { finish_reason: "stop" } },
];
const TEXT = WORDS.join("");

function replay(after: number): string {
  return "retry: 2000\n\n" + LOG.map((entry, at) => frame(at + 1, entry)).slice(after).join(": ping\n\n");
}

test("one connection", async () => {
  const result = await play(new Server((after) => body(replay(after))));
  assert.equal(result.text, TEXT);
  assert.equal(result.end, "done stop");
});

test("a cut after any byte loses nothing and repeats nothing", async () => {
  const bytes = new TextEncoder().encode(replay(0)).length;
  for (let cut = 0; cut < bytes; cut += 1) {
    const server = new Server((after, call) => {
      if (call > 1) return body(replay(after));
      const whole = new TextEncoder().encode(replay(0)).slice(0, cut);
      return new Response(whole, { status: 200 });
    });
    const result = await play(server);
    assert.equal(result.text, TEXT);
    for (const [at, text] of result.texts.entries()) assert.ok(text.startsWith(result.texts[at - 1] ?? ""), "text only grows");
  }
});

test("every connection brings one event", async () => {
  const server = new Server((after) => body(frame(after + 1, LOG[after] as Entry)));
  assert.equal((await play(server)).text, TEXT);
  assert.deepEqual(server.cursors.slice(0, 3), [undefined, "1-1", "1-2"]);
});

test("repeated events are dropped", async () => {
  const result = await play(new Server((after) => body(replay(Math.max(0, after - 2)) + replay(0))));
  assert.equal(result.text, TEXT);
});

test("a gap is replayed from the cursor", async () => {
  const server = new Server((after, call) => body(call === 1 ? frame(1, LOG[0] as Entry) + frame(2, LOG[1] as Entry) + replay(4) : replay(after)));
  assert.equal((await play(server)).text, TEXT);
  assert.deepEqual(server.cursors, [undefined, "1-2"]);
});

test("a gap that stays is bridged by a snapshot", async () => {
  const snapshot = frame(4, { kind: "snapshot", data: { text: WORDS.slice(0, 3).join("") } });
  const server = new Server((after) => body(after > 100 ? snapshot + replay(4) : replay(0).split("id: 1-4")[0] + replay(5)));
  const result = await play(server);
  assert.equal(result.text, TEXT);
  for (const [at, text] of result.texts.entries()) assert.ok(text.startsWith(result.texts[at - 1] ?? ""), "text only grows");
  assert.deepEqual(server.cursors, [undefined, "1-3", "999999999999"]);
});

test("the end as the store has it, without ids", async () => {
  const stored = replay(0).replace(/^id: .*\n/gm, "").split("event: done")[1];
  const text = `event: snapshot\ndata: ${JSON.stringify({ text: TEXT })}\n\nevent: done${stored}`;
  const result = await play(new Server((_after, call) => body(call === 1 ? replay(0).split("id: 1-3")[0] ?? "" : text)));
  assert.equal(result.text, TEXT);
  assert.equal(result.end, "done stop");
});

test("back from elsewhere, a silent connection is made anew and a lively one is kept", async () => {
  let send: ((text: string) => void) | undefined;
  const server: Server = new Server((after, call) => {
    if (call > 1) return body(replay(after));
    const open = new ReadableStream<Uint8Array>({ start: (controller) => void (send = (text) => controller.enqueue(new TextEncoder().encode(text))) });
    return new Response(open, { status: 200 });
  });
  const ended = new Promise<string>((resolve) => {
    const nothing = () => undefined;
    const texts: string[] = [];
    const handlers = { text: (text: string) => void texts.push(text), status: nothing, meta: nothing, reasoning: nothing, sources: nothing, title: nothing, connection: nothing, error: nothing, lost: nothing };
    const stream = new GenerationStream("/s", { ...handlers, done: () => resolve(texts.at(-1) ?? "") }, server);
    stream.start();
    void (async () => {
      await new Promise((next) => setTimeout(next, 10));
      send?.(frame(1, LOG[0] as Entry) + frame(2, LOG[1] as Entry));
      await new Promise((next) => setTimeout(next, 10));
      server.time += 19_000;
      stream.retryNow();
      await new Promise((next) => setTimeout(next, 10));
      assert.equal(server.cursors.length, 1);
      server.time += 2_000;
      stream.retryNow();
    })();
  });
  assert.equal(await ended, TEXT);
  assert.deepEqual(server.cursors, [undefined, "1-2"]);
});

test("a snapshot replaces what was shown and moves the cursor", async () => {
  const text = frame(1, { kind: "meta", data: {} }) + frame(2, { kind: "delta", data: { text: "ab" } }) + frame(7, { kind: "snapshot", data: { text: "abcdef" } });
  const server = new Server((_after, call) => body(call === 1 ? text : frame(8, { kind: "delta", data: { text: "g" } }) + frame(9, { kind: "done", data: { finish_reason: "length" } })));
  const result = await play(server);
  assert.equal(result.text, "abcdefg");
  assert.equal(server.cursors[1], "1-7");
});

test("a retraction replaces the text", async () => {
  const text =
    frame(1, { kind: "delta", data: { text: "secret" } }) +
    frame(2, { kind: "retract", data: { reason: "moderated", text: "Removed." } }) +
    frame(3, { kind: "error", data: { code: "moderated", message: "m", retryable: false } });
  const result = await play(new Server(() => body(text)));
  assert.equal(result.text, "Removed.");
  assert.equal(result.end, "error moderated");
});

test("network failures and 503 are tried again; 204 and 404 are the end", async () => {
  const statuses = [0, 503, 502, 0, 204];
  const server = new Server((_after, call) => {
    const status = statuses[call - 1] ?? 404;
    if (status === 0) throw new TypeError("network");
    return new Response(null, { status });
  });
  assert.equal((await play(server)).end, "lost 204");
  assert.equal((await play(new Server(() => new Response(null, { status: 404 })))).end, "lost 404");
});

test("nothing happens after close", async () => {
  let calls = 0;
  const server = new Server(() => {
    calls += 1;
    throw new TypeError("network");
  });
  const nothing = () => assert.fail("reported after close");
  const stream = new GenerationStream("/s", { text: nothing, status: nothing, meta: nothing, reasoning: nothing, sources: nothing, title: nothing, connection: () => undefined, done: nothing, error: nothing, lost: nothing }, server);
  stream.start();
  stream.close();
  stream.retryNow();
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(calls, 1);
});

/** Mulberry32, so that a failing run can be had again. */
function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** One connection of a server that obeys cursors but cuts, repeats, skips, refuses and sends snapshots as it pleases. */
function whim(random: () => number, after: number): Response {
  const upTo = (seq: number) => LOG.slice(0, seq).reduce((text, entry) => text + ((entry.data as { text?: string }).text ?? ""), "");
  const last = LOG.length;
  let from = after;
  let text = "retry: 2000\n\n";
  if (random() < 0.15) return new Response(null, { status: [500, 502, 503, 429][Math.floor(random() * 4)] ?? 500 });
  if (random() < 0.2) from = Math.max(0, after - Math.floor(random() * 4));
  if (after > last || random() < 0.15) {
    from = Math.max(after > last ? 1 : after, 1 + Math.floor(random() * (last - 1)));
    if (from >= last) from = last - 1;
    text += frame(from, { kind: "snapshot", data: { text: upTo(from) } });
  }
  const skipped = random() < 0.15 ? from + 1 + Math.floor(random() * 3) : 0;
  for (let seq = from + 1; seq <= last; seq += 1) {
    if (random() < 0.1) text += "event: status\ndata: {\"state\":\"queued\",\"position\":1,\"eta_ms\":null}\n\n: ping\n\n";
    if (random() < 0.05) text += "event: reconnect\ndata: {\"after_ms\":1}\n\n";
    if (seq !== skipped) text += frame(seq, LOG[seq - 1] as Entry);
  }
  const bytes = new TextEncoder().encode(text);
  const cut = random() < 0.7 ? Math.floor(random() * bytes.length) : bytes.length;
  return new Response(bytes.slice(0, cut), { status: 200 });
}

test("whatever the connections do, no character is missing or shown twice", async () => {
  for (let seed = 1; seed <= 400; seed += 1) {
    const random = chance(seed);
    const result = await play(new Server((after) => whim(random, after)));
    assert.equal(result.text, TEXT, `seed ${seed}`);
    assert.equal(result.end, "done stop", `seed ${seed}`);
    for (const [at, text] of result.texts.entries()) assert.ok(text.startsWith(result.texts[at - 1] ?? ""), `text only grows, seed ${seed}`);
  }
});
