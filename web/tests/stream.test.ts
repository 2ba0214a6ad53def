import assert from "node:assert/strict";
import { test } from "node:test";
import { GenerationStream, type StreamWorld } from "../src/stream";

interface Entry {
  kind: string;
  data: object;
}

/** A server with one finished log, that cuts, repeats and skips as it is told. */
class Server implements StreamWorld {
  cursors: (string | undefined)[] = [];
  private readonly timers = new Map<number, () => void>();
  private nextTimer = 1;

  constructor(private readonly answer: (after: number, call: number) => Response | Promise<Response>) {}

  async fetch(_url: string, init: RequestInit): Promise<Response> {
    const cursor = (init.headers as Record<string, string>)["Last-Event-ID"];
    this.cursors.push(cursor);
    if (this.cursors.length > 500) throw new Error("too many connections");
    return this.answer(cursor === undefined ? 0 : Number(cursor.split("-")[1]), this.cursors.length);
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

test("a gap that stays is read again from the start", async () => {
  const server = new Server((after) => body(after > 0 ? replay(after + 1) : replay(0).split("id: 1-4")[0] + replay(5)));
  const good = new Server((after, call) => (call < 4 ? server.fetch("", { headers: after ? { "Last-Event-ID": `1-${after}` } : {} }) : body(replay(after))));
  assert.equal((await play(good)).text, TEXT);
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
  const stream = new GenerationStream("/s", { text: nothing, status: nothing, title: nothing, connection: () => undefined, done: nothing, error: nothing, lost: nothing }, server);
  stream.start();
  stream.close();
  stream.retryNow();
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(calls, 1);
});
