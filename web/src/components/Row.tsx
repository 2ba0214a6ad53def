import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { api, Problem, type Conversation } from "../api";
import { openMove, openShare } from "../dialogs/open";
import { t } from "../i18n";
import { runs, unseen } from "../state/activity";
import { changeConversation, hideConversation, titleOf } from "../state/conversations";
import { go, pathOf, place, route } from "../state/router";
import { drawerOpen, plainClick } from "../state/sidebar";
import { dropThread, isRunning } from "../state/threads";
import { showToast } from "../state/toast";
import { MenuPanel, type MenuItem } from "./Menu";

/** Longer than the notice with Undo stays. */
const DELETE_AFTER_MS = 6500;

/** Hides a chat at once and deletes it when nobody has undone that. Leaving the page deletes it, too. */
export function removeWithUndo(item: Conversation): void {
  const hidden = hideConversation(item.id);
  const shown = route.peek() === item.id;
  let open = true;
  const settle = (keepalive: boolean) => {
    if (!open) return;
    open = false;
    clearTimeout(timer);
    removeEventListener("pagehide", leave);
    hidden.commit(keepalive).catch(() => showToast(t("deleteFailed")));
  };
  const leave = () => settle(true);
  const timer = setTimeout(() => settle(false), DELETE_AFTER_MS);
  addEventListener("pagehide", leave);
  dropThread(item.id);
  showToast(t("chatDeleted"), {
    label: t("undo"),
    run: () => {
      open = false;
      clearTimeout(timer);
      removeEventListener("pagehide", leave);
      hidden.undo();
      if (shown) go(item.id);
    },
  });
}

export async function change(item: Conversation, patch: Parameters<typeof changeConversation>[1], done: string | null): Promise<void> {
  try {
    await changeConversation(item.id, patch);
    if (done) showToast(done);
  } catch (error) {
    showToast(error instanceof Problem ? error.message : t("changeFailed"));
  }
}

function archive(item: Conversation): void {
  if (route.value === item.id) go(null);
  void changeConversation(item.id, { archived: true })
    .then(() => showToast(t("chatArchived"), { label: t("undo"), run: () => void change(item, { archived: false }, null) }))
    .catch(() => showToast(t("changeFailed")));
}

function Badge({ id }: { id: string }) {
  if (runs.value[id] !== undefined || isRunning(id)) return <span class="running-dot" role="img" aria-label={t("answering")} />;
  if (unseen.value.includes(id)) return <span class="unseen-dot" role="img" aria-label={t("answerUnseen")} />;
  return null;
}

function TitleField({ item, close }: { item: Conversation; close(): void }) {
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current?.select(), []);
  const save = () => {
    const title = field.current?.value.trim() ?? "";
    close();
    if (title !== "" && title !== item.title) void change(item, { title }, null);
  };
  return (
    <li class="row renaming">
      <input
        ref={field}
        value={titleOf(item)}
        maxLength={200}
        dir="auto"
        aria-label={t("chatTitle")}
        onBlur={save}
        onKeyDown={(event) => {
          if (event.isComposing || event.keyCode === 229) return;
          if (event.key === "Enter") save();
          if (event.key === "Escape") {
            event.stopPropagation();
            close();
          }
        }}
      />
    </li>
  );
}

/** The chat whose title is being written, and the one whose menu is open. */
const renaming = signal<string | null>(null);
const menuOf = signal<{ item: Conversation; button: HTMLElement } | null>(null);
let closing: string | null = null;

/** One chat of the sidebar. There may be hundreds: its menu is made when it is asked for, by `RowMenu`. */
export function Row({ item }: { item: Conversation }) {
  const active = place.value === "chat" && route.value === item.id;
  const open = menuOf.value?.item.id === item.id;
  if (renaming.value === item.id) return <TitleField item={item} close={() => (renaming.value = null)} />;
  return (
    <li class={active ? "row active" : "row"}>
      <a
        data-testid="sidebar-item"
        data-conversation-id={item.id}
        href={pathOf(item.id)}
        title={titleOf(item)}
        aria-current={active ? "page" : undefined}
        onClick={(event) => {
          if (!plainClick(event)) return;
          event.preventDefault();
          drawerOpen.value = false;
          go(item.id);
        }}
        onDblClick={() => (renaming.value = item.id)}
      >
        <span class="row-title" dir="auto">
          {titleOf(item)}
        </span>
        <Badge id={item.id} />
      </a>
      <button
        type="button"
        class="row-menu"
        aria-label={t("optionsFor", titleOf(item))}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? MENU : undefined}
        onPointerDown={() => (closing = menuOf.peek()?.item.id ?? null)}
        onClick={(event) => {
          menuOf.value = closing === item.id ? null : { item, button: event.currentTarget };
          closing = null;
        }}
      />
    </li>
  );
}

const MENU = "row-menu";

/** The open menu of a chat in the sidebar. */
export function RowMenu() {
  const at = menuOf.value;
  if (at === null) return null;
  const { item, button } = at;
  const items: MenuItem[] = [
    { label: t("rename"), icon: "pencil", run: () => (renaming.value = item.id) },
    { label: item.pinned ? t("unpin") : t("pin"), icon: "pin", run: () => void change(item, { pinned: !item.pinned }, null) },
    { label: t("move"), icon: "folder", run: () => openMove(item.id) },
    { label: t("share"), icon: "share", run: () => openShare(item.id) },
    { label: t("archive"), icon: "archive", run: () => archive(item) },
    { label: t("delete"), icon: "trash", danger: true, run: () => removeWithUndo(item) },
  ];
  const closed = () => menuOf.peek() === at && (menuOf.value = null);
  return <MenuPanel key={item.id} button={button} id={MENU} closed={closed} label={t("optionsFor", titleOf(item))} side="below" items={items} />;
}

/** Deletes every chat, page by page; tells how many went. */
export async function deleteAll(): Promise<number> {
  let deleted = 0;
  for (const archived of [false, true]) {
    for (;;) {
      const page = await api.conversations({ archived, limit: 100 });
      if (page.data.length === 0) break;
      for (const item of page.data) {
        await api.deleteConversation(item.id);
        dropThread(item.id);
        deleted += 1;
      }
    }
  }
  return deleted;
}
