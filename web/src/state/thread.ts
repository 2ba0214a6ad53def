import { batch, computed, signal } from "@preact/signals";
import { api, Problem, type Accepted, type Path } from "../api";
import { RunningAnswers } from "./answers";
import type { Attachment } from "./attachments";
import { Attempts } from "./attempts";
import { announceTurn } from "./channel";
import { headOf, readHead, refreshConversations, touchConversation } from "./conversations";
import { settleDraft } from "./drafts";
import { MessageView, newestLeaf, pendingView, settle } from "./message";
import { noticeOf, type Notice } from "./notice";
import { patiently } from "./patience";
import { chosenModel, models, refreshModels } from "./session";

/** By then a model has named a conversation after its first answer, or on a busy machine. */
const NAMED_AFTER_MS = [3000, 15000];

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

  private readonly answers = new RunningAnswers(this.id, { ended: (view) => this.ended(view), refused: (error) => this.refuse(error) });
  private readonly attempts = new Attempts();
  private readonly leaves = new Map<string, string>();
  private made: string | null = null;
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
    this.answers.expect();
    view.patch({ status: "streaming", error: null, finish_reason: null });
    try {
      const accepted = await this.attempts.run(view, `continue ${view.id} ${before.generation_id ?? ""}`, (key) => api.continueMessage(view.id, key));
      this.answers.accepted(view, accepted.generation_id);
    } catch (error) {
      view.data.value = before;
      this.refuse(error);
    }
  }

  stop(): void {
    const view = this.running.value;
    if (view && !view.stopping.value) this.answers.stop(view);
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

  /** The network or the page is back. */
  wake(): void {
    this.answers.wake();
  }

  close(): void {
    this.answers.close();
  }

  // ---- a turn

  private async turn(content: string | null, parent: string | null, base: readonly MessageView[], siblings: readonly string[], other?: string): Promise<boolean> {
    if (this.running.value) return false;
    const before = this.views.value;
    const added = this.append(content, parent, base, siblings);
    const answer = added[added.length - 1] as MessageView;
    try {
      const id = await this.ensure(answer);
      const model = other ?? (models.value.length > 1 ? chosenModel.value : null);
      const body = { content, parent_message_id: parent, ...(model ? { model } : {}) };
      const accepted = await this.attempts.run(answer, JSON.stringify([id, body]), (key) => api.send(id, key, body));
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

  /** Puts a turn on the screen before the server has it: the message, where there is one, and the place of its answer. */
  private append(content: string | null, parent: string | null, base: readonly MessageView[], siblings: readonly string[]): MessageView[] {
    const conversation = this.id.value ?? "";
    const asked = content === null ? [] : [pendingView("user", content, parent, conversation, siblings)];
    const answer = pendingView("assistant", "", asked[0]?.id ?? parent, conversation, content === null ? siblings : []);
    const added = [...asked, answer];
    batch(() => {
      this.loads += 1;
      this.answers.expect();
      this.notice.value = null;
      this.views.value = [...base, ...added];
      this.anchor.value = (asked[0] ?? base.at(-1))?.key ?? null;
      this.state.value = "ready";
    });
    return added;
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
    this.answers.accepted(answer, accepted.generation_id);
    announceTurn(id, answer.id, (content === null ? answer : first).data.value.parent_id);
    void refreshConversations();
  }

  private refuse(error: unknown, model: string | null = null): void {
    const notice = noticeOf(error, model);
    if (notice === null) return;
    this.notice.value = notice;
    void refreshModels();
  }

  /** An answer has ended: the message that was typed meanwhile goes out, or back to the composer. */
  private ended(view: MessageView): void {
    void refreshConversations();
    if (this.views.value.length <= 2) for (const wait of NAMED_AFTER_MS) setTimeout(() => void refreshConversations(), wait);
    const next = this.queued.value;
    if (next === null || this.views.value.at(-1) !== view) return;
    this.queued.value = null;
    if (view.data.value.status === "complete" || view.data.value.status === "cancelled") {
      void this.send(next).then((sent) => {
        if (!sent) this.returned.value = next;
      });
    } else this.returned.value = next;
  }

  private apply(path: Path): void {
    const known = new Map([...this.views.value, ...this.answers.views()].map((view) => [view.id, view]));
    batch(() => {
      this.views.value = path.data.map((message) => {
        const siblings = path.siblings[message.id] ?? [];
        const view = known.get(message.id);
        if (!view) return new MessageView(message, siblings);
        if (this.answers.has(message.id)) view.siblings.value = siblings;
        else view.replace(message, siblings);
        return view;
      });
      this.earlier.value = path.next;
      this.state.value = "ready";
    });
    for (const view of this.views.value) {
      const generation = view.data.value.generation_id;
      if (view.streaming && generation) this.answers.attach(view, generation);
    }
  }
}

let onAdopted: (thread: Thread, id: string) => void = () => undefined;

/** Registers what happens when a new chat's first message was accepted. */
export function onThreadAdopted(run: (thread: Thread, id: string) => void): void {
  onAdopted = run;
}
