import { computed, effect, signal, untracked } from "@preact/signals";
import { onTurnElsewhere } from "./channel";
import { seen, unseen, watchActivity } from "./activity";
import { refreshConversations } from "./conversations";
import { go, route, wantedMessage } from "./router";
import { refreshModels, session } from "./session";
import { onThreadAdopted, Thread } from "./thread";

/** Threads that were opened lately; at most this many, so that their streams never use up a browser's connections. */
const OPEN_THREADS = 4;

const open = new Map<string, Thread>();
/** Counts changes of `open`, so that what is derived from it is derived again. */
const opened = signal(0);
const fresh = signal(new Thread(null));

function openThread(id: string): Thread {
  let thread = open.get(id);
  if (thread) {
    open.delete(id);
    open.set(id, thread);
    void thread.follow();
    return thread;
  }
  thread = new Thread(id);
  open.set(id, thread);
  void thread.load();
  trim();
  opened.value += 1;
  return thread;
}

function trim(): void {
  for (const [id, thread] of open) {
    if (open.size <= OPEN_THREADS) return;
    if (id === route.value) continue;
    thread.close();
    open.delete(id);
  }
}

const shownThread = signal<Thread>(fresh.value);

/** The thread on the screen. */
export const current = computed(() => shownThread.value);

/** Conversations whose answer is running in this tab. */
export function isRunning(id: string): boolean {
  return opened.value >= 0 && open.get(id)?.running.value != null;
}

export function newChat(temporary = false): void {
  if (fresh.value.views.value.length > 0 || fresh.value.temporary.value !== temporary) fresh.value = new Thread(null, temporary);
  go(null);
  shownThread.value = fresh.value;
}

/** Closes a conversation that is being deleted; the screen goes to a new chat if it was shown. */
export function dropThread(id: string): void {
  open.get(id)?.close();
  open.delete(id);
  if (route.value === id) go(null, true);
}

/** Scrolls to a message and marks it for a moment. */
function reveal(message: string): void {
  requestAnimationFrame(() => {
    const element = document.querySelector<HTMLElement>(`[data-message-id="${CSS.escape(message)}"]`);
    if (!element) return;
    element.scrollIntoView({ block: "center" });
    element.classList.add("found");
    setTimeout(() => element.classList.remove("found"), 2400);
  });
}

export function startThreads(): void {
  onThreadAdopted((thread, id) => {
    open.set(id, thread);
    opened.value += 1;
    const shown = shownThread.value === thread;
    if (fresh.value === thread) fresh.value = new Thread(null);
    if (shown) go(id);
    trim();
  });
  effect(() => {
    if (session.value !== "in") return;
    const id = route.value;
    const blank = fresh.value;
    untracked(() => {
      const thread = id === null ? blank : open.get(id);
      if (thread && thread === shownThread.value) return;
      shownThread.value = id === null ? blank : openThread(id);
    });
  });
  effect(() => {
    if (session.value !== "in") return;
    void refreshConversations();
    const thread = shownThread.peek();
    if (thread.state.peek() === "failed") void thread.load();
  });
  effect(() => {
    const id = route.value;
    if (unseen.value.length > 0 && !document.hidden) untracked(() => seen(id));
  });
  effect(() => {
    const message = wantedMessage.value;
    const thread = shownThread.value;
    if (message === null || thread.state.value !== "ready" || thread.id.value !== route.value) return;
    untracked(() => {
      wantedMessage.value = null;
      void thread.openAt(message).then(() => reveal(message));
    });
  });
  watchActivity((id) => open.get(id)?.running.peek() != null);
  onTurnElsewhere((news) => {
    void refreshConversations();
    const thread = open.get(news.conversation);
    const last = thread?.views.peek().at(-1)?.data.peek();
    if (thread && !thread.running.peek() && (last === undefined || last.id === news.parent || last.parent_id === news.parent)) void thread.load();
  });
  const wake = () => {
    for (const thread of open.values()) thread.wake();
  };
  addEventListener("online", wake);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState !== "visible" || session.peek() !== "in") return;
    wake();
    seen(route.peek());
    void refreshConversations();
    void refreshModels();
    void shownThread.peek().follow();
  });
}
