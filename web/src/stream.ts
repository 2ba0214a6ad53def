import { LAST_DELAY_MS, ReconnectDelay } from "./reconnect";
import { SseParser, type SseEvent } from "./sse";

/** What a generation has shown, and how it ended. The text only ever grows, except by `snapshot` and `retract`. */
export interface DoneData {
  finish_reason: string;
  prompt_tokens?: number;
  cached_tokens?: number;
  output_tokens?: number;
  queued_ms?: number;
  ttft_ms?: number | null;
  duration_ms?: number;
  cost?: string | null;
  model?: string;
  requested_model?: string;
}

export interface ErrorData {
  code: string;
  message: string;
  retryable: boolean;
  retry_after_ms?: number | null;
}

export interface MetaData {
  model?: string;
  requested_model?: string;
  context?: { omitted: number; summarised: boolean; snippets: number } | null;
}

export interface Source {
  title: string;
  url: string;
}

export type StatusData =
  | { state: "queued" | "starting"; position: number; eta_ms: number | null }
  | { state: "prefill"; done: number; total: number }
  | { state: "downgraded"; from: string; to: string; reason: string }
  | { state: string };

export interface StreamHandlers {
  /** The whole text so far; called once for each batch of events that changed it. */
  text(text: string): void;
  /** What the answer is made from: its first event. */
  meta(data: MetaData): void;
  /** The model's thinking so far; it is not part of the answer. */
  reasoning(text: string): void;
  sources(items: readonly Source[]): void;
  status(status: StatusData): void;
  title(title: string): void;
  /** `offline` while there is no connection and one is being tried again. */
  connection(state: "online" | "offline"): void;
  done(data: DoneData): void;
  error(data: ErrorData): void;
  /** The stream can tell no more (204, 401, 404 …): read the message from the store. */
  lost(status: number): void;
}

/** The outside world, replaceable in tests. */
export interface StreamWorld {
  fetch(url: string, init: RequestInit): Promise<Response>;
  setTimeout(run: () => void, ms: number): unknown;
  clearTimeout(handle: unknown): void;
  random(): number;
  /** Milliseconds of a clock that never goes back. */
  now(): number;
}

const BROWSER: StreamWorld = {
  fetch: (url, init) => fetch(url, init),
  setTimeout: (run, ms) => setTimeout(run, ms),
  clearTimeout: (handle) => clearTimeout(handle as number),
  random: () => Math.random(),
  now: () => performance.now(),
};

/** The server pings after 15 s of silence; three missed pings mean that the connection is dead. */
const SILENCE_MS = 45_000;
/** A connection that was silent for longer than a ping takes may have died with the network it was made on. */
const DOUBTFUL_MS = 20_000;
/** A cursor that no log knows: the server answers it with one snapshot. */
const NOWHERE = "999999999999";

type Verdict = "more" | "finished" | "gap";

/**
 * A reader of one generation's event stream that survives lost connections.
 *
 * It keeps the last id it has consumed and hands it back as `Last-Event-ID`; an event whose `seq` is not the next one is
 * either a repetition (dropped) or a gap (the connection is given up and replayed from the cursor), so that no character
 * is shown twice or missing. How long it waits between two connections is `ReconnectDelay`'s to say; `retryNow` skips the wait.
 */
export class GenerationStream {
  private text = "";
  private shown = "";
  private thinking = "";
  private lastId: string | undefined;
  private lastSeq = 0;
  private readonly reconnect: ReconnectDelay;
  private gaps = 0;
  private closed = false;
  private abort: AbortController | undefined;
  private timer: unknown;
  private waiting = false;
  private heardAt = 0;

  constructor(
    private readonly url: string,
    private readonly handlers: StreamHandlers,
    private readonly world: StreamWorld = BROWSER,
  ) {
    this.reconnect = new ReconnectDelay(() => world.random());
  }

  /** The id of the last event that was consumed, for `seen_id`. */
  get seenId(): string | undefined {
    return this.lastId;
  }

  start(): void {
    void this.connect();
  }

  close(): void {
    this.closed = true;
    this.waiting = false;
    this.world.clearTimeout(this.timer);
    this.abort?.abort();
  }

  /**
   * The network came back, or the page is shown again: connect at once if that is being waited for, and anew where the
   * connection has been silent for so long that it may be dead.
   */
  retryNow(): void {
    if (this.closed) return;
    if (!this.waiting) {
      if (this.world.now() - this.heardAt > DOUBTFUL_MS) this.abort?.abort();
      return;
    }
    this.world.clearTimeout(this.timer);
    this.waiting = false;
    void this.connect();
  }

  private async connect(): Promise<void> {
    const abort = new AbortController();
    this.abort = abort;
    this.heardAt = this.world.now();
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    const cursor = this.gaps > 1 ? NOWHERE : this.lastId;
    if (cursor !== undefined) headers["Last-Event-ID"] = cursor;
    let delay: number | undefined;
    try {
      const response = await this.world.fetch(this.url, { headers, cache: "no-store", credentials: "same-origin", signal: abort.signal });
      if (this.closed) return;
      if (response.status === 200 && response.body) {
        delay = await this.read(response.body, abort);
      } else {
        void response.body?.cancel().catch(() => undefined);
        if (response.status < 500 && response.status !== 408 && response.status !== 429) return this.finish(() => this.handlers.lost(response.status));
      }
    } catch {
      // A broken connection is the normal case here: the cursor makes the next one go on.
    } finally {
      abort.abort();
    }
    if (!this.closed) this.schedule(delay);
  }

  /** Reads one connection to its end; returns the delay that the server asked for. */
  private async read(body: ReadableStream<Uint8Array>, abort: AbortController): Promise<number | undefined> {
    const reader = body.getReader();
    const decoder = new TextDecoder("utf-8");
    const parser = new SseParser();
    let asked: number | undefined;
    let watchdog: unknown;
    const watch = () => {
      this.heardAt = this.world.now();
      this.world.clearTimeout(watchdog);
      watchdog = this.world.setTimeout(() => abort.abort(), SILENCE_MS);
    };
    try {
      watch();
      this.handlers.connection("online");
      for (;;) {
        const { done, value } = await reader.read();
        if (done || this.closed) return asked;
        watch();
        for (const event of parser.push(decoder.decode(value, { stream: true }))) {
          if (event.type === "reconnect") asked = numberField(event.data, "after_ms");
          const verdict = this.consume(event);
          if (verdict === "finished") return undefined;
          if (verdict === "gap") return this.gap();
          if (event.type === "reconnect") return asked;
        }
        this.flush();
      }
    } finally {
      this.world.clearTimeout(watchdog);
      void reader.cancel().catch(() => undefined);
    }
  }

  private consume(event: SseEvent): Verdict {
    const data = parseObject(event.data);
    if (data === undefined) return "more";
    if (event.id === undefined) return this.unlogged(event.type, data);
    const seq = seqOf(event.id);
    if (seq === undefined) return "more";
    if (event.type !== "snapshot") {
      if (seq <= this.lastSeq) return "more";
      if (seq > this.lastSeq + 1) return "gap";
    }
    this.lastSeq = seq;
    this.lastId = event.id;
    this.reconnect.heard();
    this.gaps = 0;
    if (event.type === "delta") this.text += stringField(data, "text");
    else if (event.type === "meta") this.handlers.meta(data as MetaData);
    else if (event.type === "reasoning") this.handlers.reasoning((this.thinking += stringField(data, "text")));
    else if (event.type === "sources") this.handlers.sources(sourcesOf(data["items"]));
    else if (event.type === "snapshot" || event.type === "retract") this.text = stringField(data, "text");
    return this.ends(event.type, data) ? "finished" : "more";
  }

  /** Events outside the log, and, where the log has expired, the text and the end as the store has them. */
  private unlogged(type: string, data: Record<string, unknown>): Verdict {
    if (type === "status") this.handlers.status(data as unknown as StatusData);
    else if (type === "title") this.handlers.title(stringField(data, "title"));
    else if (type === "snapshot") this.text = stringField(data, "text");
    return this.ends(type, data) ? "finished" : "more";
  }

  private ends(type: string, data: Record<string, unknown>): boolean {
    if (type !== "done" && type !== "error") return false;
    this.finish(() => {
      this.flush();
      if (type === "done") this.handlers.done(data as unknown as DoneData);
      else this.handlers.error(data as unknown as ErrorData);
    });
    return true;
  }

  private flush(): void {
    if (this.text === this.shown) return;
    this.shown = this.text;
    this.handlers.text(this.text);
  }

  /** The replay from our cursor should close a gap; where it does not, `connect` asks for a snapshot instead. */
  private gap(): number {
    this.flush();
    this.gaps += 1;
    return this.gaps > 3 ? LAST_DELAY_MS : 0;
  }

  private finish(report: () => void): void {
    this.close();
    report();
  }

  private schedule(asked: number | undefined): void {
    const delay = this.reconnect.next(asked);
    this.waiting = true;
    if (this.reconnect.failures > 1) this.handlers.connection("offline");
    this.timer = this.world.setTimeout(() => {
      this.waiting = false;
      void this.connect();
    }, delay);
  }
}

/** The `seq` of `<epoch>-<seq>`. */
export function seqOf(id: string): number | undefined {
  const found = /^[0-9]+-([0-9]+)$/.exec(id);
  return found ? Number(found[1]) : undefined;
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function sourcesOf(value: unknown): Source[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((item: unknown) => {
    const { title, url } = (typeof item === "object" && item !== null ? item : {}) as Record<string, unknown>;
    return typeof title === "string" && typeof url === "string" ? [{ title, url }] : [];
  });
}

function stringField(data: Record<string, unknown>, name: string): string {
  const value = data[name];
  return typeof value === "string" ? value : "";
}

function numberField(text: string, name: string): number | undefined {
  const value = parseObject(text)?.[name];
  return typeof value === "number" && value >= 0 ? value : undefined;
}
