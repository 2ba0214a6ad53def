import { batch, computed, signal } from "@preact/signals";
import { api, Problem, streamUrl, type Accepted, type Path } from "../api";
import { randomId } from "../ids";
import { GenerationStream } from "../stream";
import { t } from "../i18n";
import { finished, started } from "./activity";
import type { Attachment } from "./attachments";
import { announceTurn } from "./channel";
import { headOf, patchConversation, readHead, refreshConversations, touchConversation } from "./conversations";
import { settleDraft } from "./drafts";
import { MessageView, newestLeaf, pendingView, settle } from "./message";
import { patiently } from "./patience";
import { chosenModel, models, refreshModels } from "./session";

export interface Notice {
  text: string;
  /** `Date.now()` from which the same send may be tried again. */
  readyAt: number | null;
  code?: string;
  requestId?: string | undefined;
  /** The model that was refused: another one may be tried at once. */
  model?: string | null;
  /** Which limit, what remains of it: what the server said beside its sentence. */
  body?: Record<string, unknown>;
}

interface Live {
  stream: GenerationStream;
  view: MessageView;
  generation: string;
}

/** One conversation: the shown path, the streams of its running answers, and what can be done to it. */
export class Thread {
  readonly id = signal<string | null>(null);
  readonly views = signal<readonly MessageView[]>([]);
  readonly earlier = signal<string | null>(null);
  readonly state = signal<"loading" | "ready" | "missing" | "failed">("ready");
  readonly notice = signal<Notice | null>(null);
  /** Key of the user message that the last send brought: the screen anchors there. */
  readonly anchor = signal<string | null>(null);
  /** Text that a refusal gives back to the composer. */
  readonly returned = signal<string | null>(null);
  /** Text on its way to the server, not accepted yet. */
  readonly unsent = signal<string | null>(null);
  /** The next message, typed while an answer was running. */
  readonly queued = signal<string | null>(null);
  /** Long texts that go with the next message. */
  readonly attached = signal<readonly Attachment[]>([]);
  /** Not listed, not kept, not remembered. */
  readonly temporary = signal(false);
  readonly running = computed(() => this.views.value.find((view) => view.data.value.status === "streaming") ?? null);

  private readonly live = new Map<string, Live>();
  private readonly leaves = new Map<string, string>();
  private attempt: { print: string; key: string } | undefined;
  private made: string | null = null;
  private stopEarly = false;
  private loads = 0;

  constructor(id: string | null, temporary = false) {
    this.id.value = id;
    this.temporary.value = temporary;
    if (id !== null) this.state.value = "loading";
  }

  /** Reads the path; `leaf` chooses a branch. Running answers on it are attached to. */
  async load(leaf?: string): Promise<void> {
    const id = this.id.value;
    if (id === null) return;
    this.loads += 1;
    const mine = this.loads;
    try {
      const [path] = await Promise.all([api.path(id, { leaf }), readHead(id)]);
      if (headOf(id)?.temporary) this.temporary.value = true;
      if (mine === this.loads) this.apply(path);
    } catch (error) {
      if (mine !== this.loads || this.views.value.length > 0) return;
      this.state.value = error instanceof Problem && error.status === 404 ? "missing" : "failed";
    }
  }

  /** Takes in what other tabs or devices added, unless that would move the reader to another branch. */
  async follow(): Promise<void> {
    const id = this.id.value;
    if (id === null || this.running.value) return;
    const last = this.views.value.at(-1)?.id;
    this.loads += 1;
    const mine = this.loads;
    const path = await api.path(id).catch(() => undefined);
    if (path && mine === this.loads && !this.running.value && (last === undefined || path.data.some((message) => message.id === last))) this.apply(path);
  }

  async loadEarlier(): Promise<void> {
    const [id, before] = [this.id.value, this.earlier.value];
    if (id === null || before === null) return;
    this.earlier.value = null;
    try {
      const path = await api.path(id, { before, leaf: this.views.value.at(-1)?.id });
      const added = path.data.map((message) => new MessageView(message, path.siblings[message.id] ?? []));
      batch(() => {
        this.views.value = [...added, ...this.views.value];
        this.earlier.value = path.next;
      });
    } catch {
      this.earlier.value = before;
    }
  }

  /** Shows the branch that holds a message, as far up as the message. */
  async openAt(message: string): Promise<void> {
    const id = this.id.value;
    if (id === null) return;
    if (!this.views.value.some((view) => view.id === message)) await this.load(newestLeaf((await api.tree(id)).data, message));
    while (!this.views.value.some((view) => view.id === message) && this.earlier.value !== null) {
      const before = this.earlier.value;
      await this.loadEarlier();
      if (this.earlier.value === before) return;
    }
  }

  /** Sends `content` at the end of the shown path. */
  async send(content: string): Promise<boolean> {
    const last = this.views.value.at(-1);
    this.unsent.value = content;
    const sent = await this.turn(content, last?.id ?? null, this.views.value, []);
    this.unsent.value = null;
    return sent;
  }

  /** Sends another wording of a user message: a new branch beside it. */
  edit(view: MessageView, content: string): Promise<boolean> {
    const at = this.views.value.indexOf(view);
    return this.turn(content, view.data.value.parent_id, this.views.value.slice(0, at), view.siblings.value);
  }

  /** Asks for another answer to the user message above `view` (or to `view`, if it is one). */
  regenerate(view: MessageView, model?: string): Promise<boolean> {
    const at = this.views.value.indexOf(view);
    if (view.data.value.role === "user") return this.turn(null, view.id, this.views.value.slice(0, at + 1), [], model);
    return this.turn(null, view.data.value.parent_id, this.views.value.slice(0, at), view.siblings.value, model);
  }

  async continueAnswer(view: MessageView): Promise<void> {
    if (this.running.value) return;
    const before = view.data.value;
    this.notice.value = null;
    this.stopEarly = false;
    view.patch({ status: "streaming", error: null, finish_reason: null });
    try {
      const accepted = await this.attempts(view, (key) => api.continueMessage(view.id, key), `continue ${view.id} ${before.generation_id ?? ""}`);
      this.accepted(accepted, view);
    } catch (error) {
      view.data.value = before;
      this.refuse(error);
    }
  }

  stop(): void {
    const view = this.running.value;
    if (!view || view.stopping.value) return;
    view.stopping.value = true;
    const live = this.live.get(view.id);
    if (live) void this.cancel(live);
    else this.stopEarly = true;
  }

  /** Shows the neighbour of a message and the branch below it, as far as it was last read. */
  async turnTo(view: MessageView, step: 1 | -1): Promise<void> {
    const id = this.id.value;
    const target = view.siblings.value[view.siblings.value.indexOf(view.id) + step];
    const shownLeaf = this.views.value.at(-1)?.id;
    if (id === null || target === undefined) return;
    if (shownLeaf) for (const shown of this.views.value) this.leaves.set(shown.id, shownLeaf);
    try {
      const leaf = this.leaves.get(target) ?? newestLeaf((await api.tree(id)).data, target);
      this.anchor.value = null;
      await this.load(leaf);
      void api.updateConversation(id, { current_leaf_id: leaf }).catch(() => undefined);
    } catch (error) {
      this.refuse(error);
    }
  }

  /** The network or the page is back: broken streams try at once. */
  wake(): void {
    for (const live of this.live.values()) live.stream.retryNow();
  }

  close(): void {
    for (const live of this.live.values()) live.stream.close();
    this.live.clear();
  }

  // ---- sending

  private async turn(content: string | null, parent: string | null, base: readonly MessageView[], siblings: readonly string[], other?: string): Promise<boolean> {
    if (this.running.value) return false;
    const before = this.views.value;
    const conversation = this.id.value ?? "";
    const added: MessageView[] = [];
    if (content !== null) added.push(pendingView("user", content, parent, conversation, siblings));
    const answer = pendingView("assistant", "", added[0]?.id ?? parent, conversation, content === null ? siblings : []);
    added.push(answer);
    batch(() => {
      this.loads += 1;
      this.stopEarly = false;
      this.notice.value = null;
      this.views.value = [...base, ...added];
      this.anchor.value = (added.length > 1 ? added[0] : base.at(-1))?.key ?? null;
      this.state.value = "ready";
    });
    try {
      const id = await this.ensure(answer);
      const model = other ?? (models.value.length > 1 ? chosenModel.value : null);
      const body = { content, parent_message_id: parent, ...(model ? { model } : {}) };
      const accepted = await this.attempts(answer, (key) => api.send(id, key, body), JSON.stringify([id, body]));
      this.adopt(id, accepted, content, added);
      return true;
    } catch (error) {
      batch(() => {
        this.views.value = before;
        this.refuse(error, other ?? chosenModel.value);
      });
      return false;
    }
  }

  /** The conversation's id; the first send makes the conversation. A refused first send keeps it for the next. */
  private async ensure(answer: MessageView): Promise<string> {
    const id = this.id.value ?? this.made;
    if (id !== null) return id;
    const model = models.value.length > 1 ? chosenModel.value : null;
    const wanted = { ...(model ? { model } : {}), ...(this.temporary.value ? { temporary: true } : {}) };
    const made = await patiently(answer.offline, () => api.createConversation(wanted));
    this.made = made.id;
    return made.id;
  }

  private async attempts<T>(view: MessageView, run: (key: string) => Promise<T>, print: string): Promise<T> {
    if (this.attempt?.print !== print) this.attempt = { print, key: randomId() };
    const { key } = this.attempt;
    const result = await patiently(view.offline, () => run(key));
    this.attempt = undefined;
    return result;
  }

  private adopt(id: string, accepted: Accepted, content: string | null, added: readonly MessageView[]): void {
    const [first, answer] = [added[0], added.at(-1)];
    if (!first || !answer) return;
    const fresh = this.id.value === null;
    batch(() => {
      if (content !== null) settle(first, accepted.user_message_id, id, first.data.value.parent_id);
      settle(answer, accepted.message_id, id, accepted.user_message_id);
      if (fresh) {
        this.id.value = id;
        onAdopted(this, id);
      }
      if (content !== null) settleDraft(fresh ? null : id, id, content);
      touchConversation(id, content, accepted.message_id, this.temporary.value);
    });
    this.accepted(accepted, answer);
    announceTurn(id, answer.id, (content === null ? answer : first).data.value.parent_id);
    void refreshConversations();
  }

  private accepted(accepted: Accepted, view: MessageView): void {
    view.patch({ generation_id: accepted.generation_id });
    const live = this.attach(view, accepted.generation_id);
    if (this.stopEarly) {
      this.stopEarly = false;
      void this.cancel(live);
    }
  }

  private refuse(error: unknown, model: string | null = null): void {
    const problem = error instanceof Problem ? error : new Problem(0, "internal", t("pageFailed"));
    if (problem.status === 401) return;
    const wait = problem.retryAfterMs;
    const { code, requestId, body, message } = problem;
    this.notice.value = { text: message, readyAt: wait === undefined ? null : Date.now() + wait, code, requestId, model, body };
    void refreshModels();
  }

  // ---- streaming

  private attach(view: MessageView, generation: string): Live {
    const known = this.live.get(view.id);
    if (known?.generation === generation) return known;
    known?.stream.close();
    const stored = view.text.value;
    const conversation = this.id.peek();
    if (conversation !== null) started(conversation, generation);
    let thinkingSince: number | null = null;
    const stream = new GenerationStream(streamUrl(generation), {
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
      title: (title) => this.id.value !== null && patchConversation(this.id.value, { title }),
      connection: (state) => (view.offline.value = state === "offline"),
      done: (data) => {
        const cancelled = data.finish_reason === "cancelled";
        if (data.duration_ms !== undefined) view.times.value = { queued_ms: data.queued_ms ?? 0, ttft_ms: data.ttft_ms ?? null, duration_ms: data.duration_ms };
        this.ended(view, () =>
          view.patch({
            status: cancelled ? "cancelled" : "complete",
            finish_reason: data.finish_reason,
            prompt_tokens: data.prompt_tokens ?? null,
            cached_tokens: data.cached_tokens ?? null,
            output_tokens: data.output_tokens ?? null,
            cost: data.cost ?? null,
            model: data.model ?? null,
            requested_model: data.requested_model ?? null,
          }),
        );
        if (cancelled) void this.reread(view);
      },
      error: (data) => {
        const status = data.code === "interrupted" ? "interrupted" : "failed";
        this.ended(view, () => view.patch({ status, error: { code: data.code, message: data.message, retryable: data.retryable } }));
        void this.reread(view);
      },
      lost: () => {
        this.live.delete(view.id);
        void this.reread(view);
      },
    });
    const live = { stream, view, generation };
    this.live.set(view.id, live);
    stream.start();
    return live;
  }

  private ended(view: MessageView, change: () => void): void {
    this.live.delete(view.id);
    const [conversation, generation] = [this.id.peek(), view.data.peek().generation_id];
    if (conversation !== null && generation) finished(conversation, generation);
    batch(() => {
      view.wait.value = null;
      view.offline.value = false;
      view.stopping.value = false;
      change();
    });
    void refreshConversations();
    const next = this.queued.value;
    if (next === null || this.views.value.at(-1) !== view) return;
    this.queued.value = null;
    if (view.data.value.status === "complete" || view.data.value.status === "cancelled") {
      void this.send(next).then((sent) => {
        if (!sent) this.returned.value = next;
      });
    } else this.returned.value = next;
  }

  /** The store has the last word on a message whose stream ended early; one that still runs is attached to again. */
  private async reread(view: MessageView, wait = 500): Promise<void> {
    const id = this.id.value;
    if (id === null) return;
    try {
      const path = await api.path(id, { leaf: view.id });
      const stored = path.data.find((message) => message.id === view.id);
      if (!stored || this.live.has(view.id)) return;
      if (stored.status !== "streaming") {
        batch(() => {
          view.stopping.value = false;
          view.offline.value = false;
          view.wait.value = null;
          view.replace(stored, path.siblings[view.id] ?? []);
        });
      } else if (stored.generation_id) {
        await new Promise((resolve) => setTimeout(resolve, wait));
        if (!this.live.has(view.id)) this.attach(view, stored.generation_id);
      }
    } catch (error) {
      if (error instanceof Problem && error.status > 0 && error.status < 500) return;
      view.offline.value = view.streaming;
      setTimeout(() => void this.reread(view), Math.min(wait * 2, 8000));
    }
  }

  private async cancel(live: Live): Promise<void> {
    for (const delay of [400, 1200, null]) {
      try {
        await api.cancel(live.generation, live.stream.seenId);
        return;
      } catch (error) {
        if (delay === null || (error instanceof Problem && error.status === 401)) {
          live.view.stopping.value = false;
          this.refuse(error);
          return;
        }
        await new Promise((resolve) => setTimeout(resolve, delay));
      }
    }
  }

  private apply(path: Path): void {
    const known = new Map(this.views.value.map((view) => [view.id, view]));
    for (const live of this.live.values()) known.set(live.view.id, live.view);
    batch(() => {
      this.views.value = path.data.map((message) => {
        const siblings = path.siblings[message.id] ?? [];
        const view = known.get(message.id);
        if (!view) return new MessageView(message, siblings);
        if (this.live.has(message.id)) view.siblings.value = siblings;
        else view.replace(message, siblings);
        return view;
      });
      this.earlier.value = path.next;
      this.state.value = "ready";
    });
    for (const view of this.views.value) {
      const generation = view.data.value.generation_id;
      if (view.streaming && generation) this.attach(view, generation);
    }
  }
}

let onAdopted: (thread: Thread, id: string) => void = () => undefined;

/** Registers what happens when a new chat's first message was accepted. */
export function onThreadAdopted(run: (thread: Thread, id: string) => void): void {
  onAdopted = run;
}
