import { computed, effect, signal, untracked } from "@preact/signals";
import { onTurnElsewhere } from "./channel";
import { forgetConversation, refreshConversations } from "./conversations";
import { go, route } from "./router";
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

export function newChat(): void {
  if (fresh.value.views.value.length > 0) fresh.value = new Thread(null);
  go(null);
  shownThread.value = fresh.value;
}

export function dropThread(id: string): void {
  open.get(id)?.close();
  open.delete(id);
  forgetConversation(id);
  if (route.value === id) {
    go(null, true);
  }
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
    if (session.value === "in") void refreshConversations();
  });
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
    void refreshConversations();
    void refreshModels();
    void shownThread.peek().follow();
  });
}
