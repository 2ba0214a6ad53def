import { computed, signal } from "@preact/signals";
import { api, type Conversation } from "../api";
import { route } from "./router";

export const conversations = signal<Conversation[]>([]);
export const nextPage = signal<string | null>(null);
export const listLoaded = signal(false);

let refreshing: Promise<void> | undefined;
let again = false;

/** Re-reads the newest page; calls that overlap become one more reading. */
export function refreshConversations(): Promise<void> {
  if (refreshing) {
    again = true;
    return refreshing;
  }
  refreshing = read().finally(() => {
    refreshing = undefined;
    if (again) {
      again = false;
      void refreshConversations();
    }
  });
  return refreshing;
}

async function read(): Promise<void> {
  try {
    const page = await api.conversations();
    const ids = new Set(page.data.map((item) => item.id));
    const oldest = page.data.at(-1)?.updated_at ?? "";
    const rest = page.next === null ? [] : conversations.value.filter((item) => !ids.has(item.id) && item.updated_at < oldest);
    if (rest.length === 0) nextPage.value = page.next;
    conversations.value = [...page.data, ...rest];
    listLoaded.value = true;
  } catch {
    // The list stays as it was; the next focus or send reads it again.
  }
}

let readingMore = false;

export async function loadMoreConversations(): Promise<void> {
  const after = nextPage.value;
  if (after === null || readingMore) return;
  readingMore = true;
  try {
    const page = await api.conversations(after);
    const known = new Set(conversations.value.map((item) => item.id));
    conversations.value = [...conversations.value, ...page.data.filter((item) => !known.has(item.id))];
    nextPage.value = page.next;
  } catch {
    // Scrolling again tries again.
  } finally {
    readingMore = false;
  }
}

function upsertConversation(item: Conversation): void {
  const rest = conversations.value.filter((other) => other.id !== item.id);
  conversations.value = [item, ...rest].sort((a, b) => (a.updated_at < b.updated_at ? 1 : a.updated_at > b.updated_at ? -1 : 0));
}

/** Moves a conversation to the top after a turn was accepted; a new one appears under its first words. */
export function touchConversation(id: string, content: string | null, leaf: string): void {
  const now = new Date().toISOString();
  const known = conversations.value.find((item) => item.id === id);
  const title = (content ?? "").trim().split("\n")[0]?.slice(0, 60) ?? "";
  const made: Conversation = { id, title, model: null, current_leaf_id: null, version: 1, pinned: false, archived: false, created_at: now, updated_at: now };
  upsertConversation({ ...(known ?? made), updated_at: now, current_leaf_id: leaf });
}

export function patchConversation(id: string, patch: Partial<Conversation>): void {
  conversations.value = conversations.value.map((item) => (item.id === id ? { ...item, ...patch } : item));
}

export async function renameConversation(id: string, title: string): Promise<void> {
  const before = conversations.value.find((item) => item.id === id)?.title ?? "";
  patchConversation(id, { title });
  try {
    await api.updateConversation(id, { title });
  } catch (error) {
    patchConversation(id, { title: before });
    throw error;
  }
}

export function forgetConversation(id: string): void {
  conversations.value = conversations.value.filter((item) => item.id !== id);
}

export function titleOf(item: Conversation): string {
  return item.title.trim() || "New chat";
}

export const currentTitle = computed(() => {
  const item = conversations.value.find((other) => other.id === route.value);
  return item ? titleOf(item) : null;
});

export interface DateGroup {
  label: string;
  items: Conversation[];
}

/** Pinned, Today, Yesterday, Previous 7 days, Previous 30 days, then months; empty untitled ones are left out. */
export const groups = computed<DateGroup[]>(() => {
  const result: DateGroup[] = [];
  const byLabel = new Map<string, DateGroup>();
  const now = new Date();
  const visible = conversations.value.filter((item) => item.current_leaf_id !== null || item.title !== "" || item.id === route.value);
  for (const item of [...visible.filter((one) => one.pinned), ...visible.filter((one) => !one.pinned)]) {
    const label = item.pinned ? "Pinned" : dateLabel(new Date(item.updated_at), now);
    let group = byLabel.get(label);
    if (!group) {
      group = { label, items: [] };
      byLabel.set(label, group);
      result.push(group);
    }
    group.items.push(item);
  }
  return result;
});

export function dateLabel(date: Date, now: Date): string {
  const midnight = (value: Date) => new Date(value.getFullYear(), value.getMonth(), value.getDate()).getTime();
  const days = Math.round((midnight(now) - midnight(date)) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days <= 7) return "Previous 7 days";
  if (days <= 30) return "Previous 30 days";
  const sameYear = date.getFullYear() === now.getFullYear();
  return date.toLocaleDateString(undefined, sameYear ? { month: "long" } : { month: "long", year: "numeric" });
}
