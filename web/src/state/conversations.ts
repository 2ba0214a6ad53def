import { computed, signal } from "@preact/signals";
import { api, isAbsent, Problem, type Conversation, type ConversationPatch } from "../api";
import { t } from "../i18n";
import { month } from "../i18n/format";
import { route } from "./router";

export interface FolderState {
  name: string;
  count: number;
}

const FOLDERS_KEY = "antiphon.folders";

/** What is listed: neither archived nor temporary, newest first. */
export const conversations = signal<Conversation[]>([]);
export const nextPage = signal<string | null>(null);
export const listLoaded = signal(false);
export const folders = signal<FolderState[]>([]);
/** Names of folders that are unfolded. */
export const openFolders = signal<string[]>(JSON.parse(localStorage.getItem(FOLDERS_KEY) ?? "[]") as string[]);
/** Heads of conversations that are open but not listed: archived, temporary, or far down. */
export const heads = signal<Record<string, Conversation>>({});
/** Hidden at once, deleted a little later, unless it is undone. */
const leaving = new Set<string>();

let refreshing: Promise<void> | undefined;
let again = false;

/** Re-reads the newest page, the pinned ones and the open folders; calls that overlap become one more reading. */
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

/** Counts changes made here: a page that was read before one must not undo it on the screen. */
let changes = 0;

async function read(): Promise<void> {
  const before = changes;
  try {
    const [page, pinned, found] = await Promise.all([
      api.conversations(),
      api.conversations({ pinned: true, limit: 100 }),
      api.folders().catch((error: unknown) => {
        if (isAbsent(error)) return { data: [] };
        throw error;
      }),
    ]);
    const named = found.data.map((folder) => ({ name: folder.name, count: folder.conversations }));
    if (JSON.stringify(named) !== JSON.stringify(folders.value)) folders.value = named;
    const inFolders = await Promise.all(openFolders.value.filter((name) => found.data.some((folder) => folder.name === name)).map((folder) => api.conversations({ folder, limit: 100 })));
    if (before !== changes) {
      again = true;
      return;
    }
    const fresh = [...page.data, ...pinned.data, ...inFolders.flatMap((one) => one.data)];
    const ids = new Set(fresh.map((item) => item.id));
    const oldest = page.data.at(-1)?.updated_at ?? "";
    const rest = page.next === null || !readMore ? [] : conversations.value.filter((item) => !ids.has(item.id) && item.updated_at < oldest && !item.pinned && item.folder === null);
    if (rest.length === 0) nextPage.value = page.next;
    put([...fresh, ...rest]);
    listLoaded.value = true;
  } catch {
    // The list stays as it was; the next focus or send reads it again.
  }
}

/** Takes in a list; what has not changed keeps its object, so that its row is not drawn again. */
function put(items: readonly Conversation[]): void {
  const before = conversations.value;
  const known = new Map(before.map((item) => [item.id, item]));
  const listed = items.filter((item) => !leaving.has(item.id) && !item.temporary && !item.archived);
  const byId = new Map(listed.map((item) => [item.id, unchanged(known.get(item.id), item) ?? item]));
  const after = [...byId.values()].sort((a, b) => (a.updated_at < b.updated_at ? 1 : a.updated_at > b.updated_at ? -1 : 0));
  if (after.length !== before.length || after.some((item, at) => item !== before[at])) conversations.value = after;
}

/** The known object where it says the same as the new one. */
function unchanged(known: Conversation | undefined, item: Conversation): Conversation | undefined {
  return known && (Object.keys(item) as (keyof Conversation)[]).every((name) => known[name] === item[name]) ? known : undefined;
}

let readingMore = false;
/** Somebody has scrolled beyond the newest page: what they saw stays, while the newest is read anew. */
let readMore = false;

export async function loadMoreConversations(): Promise<void> {
  const after = nextPage.value;
  if (after === null || readingMore) return;
  readingMore = true;
  try {
    const page = await api.conversations({ after });
    put([...page.data, ...conversations.value]);
    nextPage.value = page.next;
    readMore = true;
  } catch {
    // Scrolling again tries again.
  } finally {
    readingMore = false;
  }
}

/** Unfolds or folds a folder; an unfolded one is read from the server. */
export async function toggleFolder(name: string): Promise<void> {
  const shown = openFolders.value.includes(name);
  openFolders.value = shown ? openFolders.value.filter((other) => other !== name) : [...openFolders.value, name];
  localStorage.setItem(FOLDERS_KEY, JSON.stringify(openFolders.value));
  if (!shown) {
    const page = await api.conversations({ folder: name, limit: 100 }).catch(() => undefined);
    if (page) put([...page.data, ...conversations.value]);
  }
}

/** Moves a conversation to the top after a turn was accepted; a new one appears under its first words. */
export function touchConversation(id: string, content: string | null, leaf: string, temporary: boolean): void {
  const now = new Date().toISOString();
  const known = conversations.value.find((item) => item.id === id) ?? heads.value[id];
  const title = (content ?? "").trim().split("\n")[0]?.slice(0, 60) ?? "";
  const head = { id, title, model: null, current_leaf_id: null, version: 1, pinned: false, archived: false, folder: null, temporary, created_at: now, updated_at: now };
  const touched: Conversation = { ...head, ...known, updated_at: now, current_leaf_id: leaf };
  if (touched.temporary || touched.archived) heads.value = { ...heads.value, [id]: touched };
  else put([touched, ...conversations.value.filter((other) => other.id !== id)]);
}

/** Reads the head of an open conversation that the list does not hold. */
export async function readHead(id: string): Promise<void> {
  if (headOf(id)) return;
  const head = await api.conversation(id).catch(() => undefined);
  if (head) heads.value = { ...heads.value, [id]: head };
}

export function headOf(id: string | null): Conversation | undefined {
  return id === null ? undefined : (conversations.value.find((item) => item.id === id) ?? heads.value[id]);
}

export function patchConversation(id: string, patch: Partial<Conversation>): void {
  changes += 1;
  if (heads.value[id]) heads.value = { ...heads.value, [id]: { ...heads.value[id], ...patch } };
  put(conversations.value.map((item) => (item.id === id ? { ...item, ...patch } : item)));
}

/** Changes a conversation here at once and then there; puts it back and raises where the server refuses. */
export async function changeConversation(id: string, patch: ConversationPatch): Promise<void> {
  const before = headOf(id);
  patchConversation(id, patch);
  try {
    const head = await api.updateConversation(id, patch);
    changes += 1;
    heads.value = { ...heads.value, [id]: head };
    put([head, ...conversations.value.filter((item) => item.id !== id)]);
  } catch (error) {
    if (before) {
      patchConversation(id, before);
      put([before, ...conversations.value.filter((item) => item.id !== id)]);
    }
    throw error;
  }
  void refreshConversations();
}

/** Hides a conversation; `commit` deletes it, `undo` shows it again. */
export function hideConversation(id: string): { commit(keepalive: boolean): Promise<void>; undo(): void } {
  const item = headOf(id);
  changes += 1;
  leaving.add(id);
  put(conversations.value);
  return {
    commit: async (keepalive) => {
      try {
        await api.deleteConversation(id, keepalive);
      } catch (error) {
        if (error instanceof Problem && error.status === 404) return;
        leaving.delete(id);
        if (item) put([item, ...conversations.value]);
        throw error;
      }
    },
    undo: () => {
      leaving.delete(id);
      if (item) put([item, ...conversations.value]);
    },
  };
}

export function titleOf(item: Conversation): string {
  return item.title.trim() || t("newChat");
}

export const currentTitle = computed(() => {
  const item = headOf(route.value);
  return item ? titleOf(item) : null;
});

export interface DateGroup {
  key: string;
  label: string;
  items: Conversation[];
}

/** Empty untitled conversations are left out. */
const visible = computed(() => conversations.value.filter((item) => item.current_leaf_id !== null || item.title !== "" || item.id === route.value));

export const pinnedItems = computed(() => visible.value.filter((item) => item.pinned));

export function folderItems(name: string): Conversation[] {
  return visible.value.filter((item) => item.folder === name && !item.pinned);
}

/** Today, Yesterday, Previous 7 days, Previous 30 days, then months; what is pinned or in a folder stands elsewhere. */
export const groups = computed<DateGroup[]>(() => {
  const byKey = new Map<string, DateGroup>();
  const now = new Date();
  for (const item of visible.value) {
    if (item.pinned || item.folder !== null) continue;
    const label = dateLabel(new Date(item.updated_at), now);
    const group = byKey.get(label) ?? { key: label, label, items: [] };
    group.items.push(item);
    byKey.set(label, group);
  }
  return [...byKey.values()];
});

export function dateLabel(date: Date, now: Date): string {
  const midnight = (value: Date) => new Date(value.getFullYear(), value.getMonth(), value.getDate()).getTime();
  const days = Math.round((midnight(now) - midnight(date)) / 86_400_000);
  if (days <= 0) return t("today");
  if (days === 1) return t("yesterday");
  if (days <= 7) return t("previousDays", 7);
  if (days <= 30) return t("previousDays", 30);
  return month(date, now);
}
