import { signal, type Signal } from "@preact/signals";
import type { Message } from "../api";
import { randomId } from "../ids";
import type { StatusData } from "../stream";

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

  constructor(message: Message, siblings: readonly string[], pending = false) {
    this.data = signal(message);
    this.text = signal(message.content);
    this.siblings = signal(siblings.length > 0 ? siblings : [message.id]);
    this.pending = signal(pending);
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

  /** Takes the stored message as it is; the text moves only if it differs. */
  replace(message: Message, siblings: readonly string[]): void {
    this.data.value = message;
    this.text.value = message.content;
    this.siblings.value = siblings.length > 0 ? siblings : [message.id];
  }
}

export function draftMessage(role: "user" | "assistant", content: string, parent: string | null, conversation: string): Message {
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
    generation_id: null,
    created_at: new Date().toISOString(),
    error: null,
  };
}
