import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api, Problem, type Conversation } from "../api";
import { openMove, openShare } from "../dialogs/open";
import { t } from "../i18n";
import { runs, unseen } from "../state/activity";
import { changeConversation, hideConversation, titleOf } from "../state/conversations";
import { go, pathOf, place, route } from "../state/router";
import { drawerOpen, plainClick } from "../state/sidebar";
import { dropThread, isRunning } from "../state/threads";
import { showToast } from "../state/toast";
import { Icon } from "./Icon";
import { Menu } from "./Menu";

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
  useEffect(() => field.current?.select(), []);
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

/** One chat of the sidebar. */
export function Row({ item }: { item: Conversation }) {
  const renaming = useSignal(false);
  const active = place.value === "chat" && route.value === item.id;
  if (renaming.value) return <TitleField item={item} close={() => (renaming.value = false)} />;
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
        onDblClick={() => (renaming.value = true)}
      >
        <span class="row-title" dir="auto">
          {titleOf(item)}
        </span>
        <Badge id={item.id} />
      </a>
      <Menu
        label={t("optionsFor", titleOf(item))}
        className="row-menu"
        items={() => [
          { label: t("rename"), icon: "pencil", run: () => (renaming.value = true) },
          { label: item.pinned ? t("unpin") : t("pin"), icon: "pin", run: () => void change(item, { pinned: !item.pinned }, null) },
          { label: t("move"), icon: "folder", run: () => openMove(item.id) },
          { label: t("share"), icon: "share", run: () => openShare(item.id) },
          { label: t("archive"), icon: "archive", run: () => archive(item) },
          { label: t("delete"), icon: "trash", danger: true, run: () => removeWithUndo(item) },
        ]}
      >
        <Icon name="dots" size={16} />
      </Menu>
    </li>
  );
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
