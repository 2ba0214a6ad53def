import { batch, type ReadonlySignal } from "@preact/signals";
import { api, Problem, streamUrl } from "../api";
import { GenerationStream, type DoneData, type StreamHandlers } from "../stream";
import { finished, started } from "./activity";
import { patchConversation } from "./conversations";
import type { MessageView } from "./message";

interface Running {
  stream: GenerationStream;
  view: MessageView;
  generation: string;
}

interface Told {
  /** An answer's stream has come to its end. */
  ended(view: MessageView): void;
  refused(error: unknown): void;
}

const CANCEL_AGAIN_MS = [400, 1200, null];
const LONGEST_WAIT_MS = 8000;

/** The running answers of one conversation: each has a stream that writes into its message on the screen. */
export class RunningAnswers {
  private readonly running = new Map<string, Running>();
  /** Messages that are to be stopped as soon as it is known which generation writes them. */
  private stopEarly = false;

  constructor(
    private readonly conversation: ReadonlySignal<string | null>,
    private readonly told: Told,
  ) {}

  has(message: string): boolean {
    return this.running.has(message);
  }

  views(): MessageView[] {
    return [...this.running.values()].map(({ view }) => view);
  }

  /** A turn begins whose generation is not known yet. */
  expect(): void {
    this.stopEarly = false;
  }

  /** The expected turn was accepted. */
  accepted(view: MessageView, generation: string): void {
    view.patch({ generation_id: generation });
    const running = this.attach(view, generation);
    if (!this.stopEarly) return;
    this.stopEarly = false;
    void this.cancel(running);
  }

  /** Follows a generation from where the message's text ends. */
  attach(view: MessageView, generation: string): Running {
    const known = this.running.get(view.id);
    if (known?.generation === generation) return known;
    known?.stream.close();
    const conversation = this.conversation.peek();
    if (conversation !== null) started(conversation, generation);
    const running = { stream: new GenerationStream(streamUrl(generation), this.writerOf(view)), view, generation };
    this.running.set(view.id, running);
    running.stream.start();
    return running;
  }

  stop(view: MessageView): void {
    view.stopping.value = true;
    const running = this.running.get(view.id);
    if (running) void this.cancel(running);
    else this.stopEarly = true;
  }

  /** The network or the page is back: broken streams try at once. */
  wake(): void {
    for (const { stream } of this.running.values()) stream.retryNow();
  }

  close(): void {
    for (const { stream } of this.running.values()) stream.close();
    this.running.clear();
  }

  private writerOf(view: MessageView): StreamHandlers {
    const stored = view.text.value;
    let thinkingSince: number | null = null;
    return {
      meta: ({ context, model, requested_model: requested }) =>
        view.patch({ ...(context === undefined ? {} : { context }), ...(model ? { model } : {}), ...(requested ? { requested_model: requested } : {}) }),
      reasoning: (text) => {
        thinkingSince ??= performance.now();
        view.wait.value = null;
        view.reasoning.value = text;
      },
      sources: (items) => (view.sources.value = items),
      text: (text) => {
        view.wait.value = null;
        if (thinkingSince !== null) view.thoughtMs.value ??= performance.now() - thinkingSince;
        // A replay from the start passes through text that is on the screen already.
        if (text.length < stored.length && stored.startsWith(text)) return;
        view.text.value = text;
      },
      status: (status) => {
        if (status.state === "downgraded" && "to" in status) view.downgrade.value = status;
        else view.wait.value = status;
      },
      title: (title) => {
        const conversation = this.conversation.peek();
        if (conversation !== null) patchConversation(conversation, { title });
      },
      connection: (state) => (view.offline.value = state === "offline"),
      done: (data) => {
        this.ended(view, () => complete(view, data));
        if (data.finish_reason === "cancelled") void this.reread(view);
      },
      error: ({ code, message, retryable }) => {
        this.ended(view, () => view.patch({ status: code === "interrupted" ? "interrupted" : "failed", error: { code, message, retryable } }));
        void this.reread(view);
      },
      lost: () => {
        this.running.delete(view.id);
        void this.reread(view);
      },
    };
  }

  private ended(view: MessageView, change: () => void): void {
    this.running.delete(view.id);
    const [conversation, generation] = [this.conversation.peek(), view.data.peek().generation_id];
    if (conversation !== null && generation) finished(conversation, generation);
    batch(() => {
      view.rest();
      change();
    });
    this.told.ended(view);
  }

  /** The store has the last word on a message whose stream ended early; one that still runs is attached to again. */
  private async reread(view: MessageView, wait = 500): Promise<void> {
    const conversation = this.conversation.peek();
    if (conversation === null) return;
    try {
      const path = await api.path(conversation, { leaf: view.id });
      const stored = path.data.find((message) => message.id === view.id);
      if (!stored || this.running.has(view.id)) return;
      if (stored.status !== "streaming") {
        batch(() => {
          view.rest();
          view.replace(stored, path.siblings[view.id] ?? []);
        });
      } else if (stored.generation_id) {
        await new Promise((resolve) => setTimeout(resolve, wait));
        if (!this.running.has(view.id)) this.attach(view, stored.generation_id);
      }
    } catch (error) {
      if (error instanceof Problem && error.status > 0 && error.status < 500) return;
      view.offline.value = view.streaming;
      setTimeout(() => void this.reread(view), Math.min(wait * 2, LONGEST_WAIT_MS));
    }
  }

  private async cancel({ stream, view, generation }: Running): Promise<void> {
    for (const delay of CANCEL_AGAIN_MS) {
      try {
        await api.cancel(generation, stream.seenId);
        return;
      } catch (error) {
        if (delay === null || (error instanceof Problem && error.status === 401)) {
          view.stopping.value = false;
          this.told.refused(error);
          return;
        }
        await new Promise((resolve) => setTimeout(resolve, delay));
      }
    }
  }
}

function complete(view: MessageView, data: DoneData): void {
  if (data.duration_ms !== undefined) view.times.value = { queued_ms: data.queued_ms ?? 0, ttft_ms: data.ttft_ms ?? null, duration_ms: data.duration_ms };
  view.patch({
    status: data.finish_reason === "cancelled" ? "cancelled" : "complete",
    finish_reason: data.finish_reason,
    prompt_tokens: data.prompt_tokens ?? null,
    cached_tokens: data.cached_tokens ?? null,
    output_tokens: data.output_tokens ?? null,
    cost: data.cost ?? null,
    model: data.model ?? null,
    requested_model: data.requested_model ?? null,
  });
}
