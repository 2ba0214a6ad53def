import { signal, type Signal } from "@preact/signals";
import type { Message } from "../api";
import { randomId } from "../ids";
import type { Source, StatusData } from "../stream";

export interface Times {
  queued_ms: number;
  ttft_ms: number | null;
  duration_ms: number;
}

export interface Downgrade {
  from: string;
  to: string;
  reason: string;
}

/** One message on the screen. `key` stays the same from the optimistic append to the stored message. */
export class MessageView {
  readonly key = randomId();
  readonly data: Signal<Message>;
  /** What is shown; for a running answer it comes from the stream. */
  readonly text: Signal<string>;
  readonly siblings: Signal<readonly string[]>;
  readonly wait = signal<StatusData | null>(null);
  /** The stream is broken and being tried again. */
  readonly offline = signal(false);
  /** Not accepted by the server yet. */
  readonly pending: Signal<boolean>;
  readonly stopping = signal(false);
  /** The model's thinking, and how long it took; not part of the answer. */
  readonly reasoning: Signal<string>;
  readonly thoughtMs = signal<number | null>(null);
  readonly sources = signal<readonly Source[]>([]);
  /** What the stream said of its times, where this page saw its end. */
  readonly times = signal<Times | null>(null);
  /** Another model answers than the one that was asked for, and why. */
  readonly downgrade = signal<Downgrade | null>(null);
  readonly rating: Signal<1 | -1 | 0>;

  constructor(message: Message, siblings: readonly string[], pending = false) {
    this.data = signal(message);
    this.text = signal(message.content);
    this.reasoning = signal(message.reasoning ?? "");
    this.siblings = signal(siblings.length > 0 ? siblings : [message.id]);
    this.pending = signal(pending);
    this.rating = signal(ratingOf(message));
  }

  get id(): string {
    return this.data.value.id;
  }

  get streaming(): boolean {
    return this.data.value.status === "streaming";
  }

  patch(change: Partial<Message>): void {
    this.data.value = { ...this.data.value, ...change };
  }

  /** Nothing is on its way any more. */
  rest(): void {
    this.wait.value = null;
    this.offline.value = false;
    this.stopping.value = false;
  }

  /** Takes the stored message as it is; the text moves only if it differs. */
  replace(message: Message, siblings: readonly string[]): void {
    this.data.value = message;
    this.text.value = message.content;
    if (message.reasoning) this.reasoning.value = message.reasoning;
    this.rating.value = ratingOf(message);
    this.siblings.value = siblings.length > 0 ? siblings : [message.id];
  }
}

function ratingOf(message: Message): 1 | -1 | 0 {
  return message.rating ?? 0;
}

function draftMessage(role: "user" | "assistant", content: string, parent: string | null, conversation: string): Message {
  return {
    id: `draft-${randomId()}`,
    conversation_id: conversation,
    parent_id: parent,
    role,
    content,
    status: role === "assistant" ? "streaming" : "complete",
    model: null,
    requested_model: null,
    finish_reason: null,
    prompt_tokens: null,
    cached_tokens: null,
    output_tokens: null,
    cost: null,
    generation_id: null,
    created_at: new Date().toISOString(),
    error: null,
  };
}

/** A message shown before the server has accepted it. */
export function pendingView(role: "user" | "assistant", content: string, parent: string | null, conversation: string, siblings: readonly string[]): MessageView {
  const message = draftMessage(role, content, parent, conversation);
  return new MessageView(message, [...siblings, message.id], true);
}

/** Gives a pending message the ids that the server chose. */
export function settle(view: MessageView, id: string, conversation: string, parent: string | null): void {
  const draft = view.id;
  view.siblings.value = view.siblings.value.map((sibling) => (sibling === draft ? id : sibling));
  view.patch({ id, conversation_id: conversation, parent_id: parent });
  view.pending.value = false;
}

/** The newest descendant of `from`: at each step the child that was made last. */
export function newestLeaf(nodes: readonly { id: string; parent_id: string | null }[], from: string): string {
  const newest = new Map<string, string>();
  for (const node of nodes) if (node.parent_id !== null) newest.set(node.parent_id, node.id);
  let leaf = from;
  for (let next = newest.get(leaf); next !== undefined; next = newest.get(leaf)) leaf = next;
  return leaf;
}
