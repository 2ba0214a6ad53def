import { openShare } from "../dialogs/open";
import { t } from "../i18n";
import { showToast } from "../state/toast";
import { changeConversation, headOf } from "../state/conversations";
import { drawerOpen, sidebarShown, startNewChat, toggleSidebar } from "../state/sidebar";
import type { Thread } from "../state/thread";
import { newChat } from "../state/threads";
import { Icon } from "./Icon";
import { Menu } from "./Menu";
import { ModelPicker } from "./ModelPicker";
import { change, removeWithUndo } from "./Row";

export function Header({ thread }: { thread: Thread }) {
  const id = thread.id.value;
  const head = headOf(id);
  const temporary = thread.temporary.value;
  const empty = thread.views.value.length === 0;
  return (
    <header class="topbar">
      <button
        type="button"
        class={sidebarShown.value ? "ghost only-narrow" : "ghost"}
        aria-label={t("showSidebar")}
        title={t("showSidebar")}
        aria-controls="sidebar"
        aria-expanded={drawerOpen.value}
        onClick={toggleSidebar}
      >
        <Icon name="sidebar" size={20} />
      </button>
      <ModelPicker />
      <div class="topbar-end">
        {empty ? (
          <button type="button" class={temporary ? "ghost on" : "ghost"} aria-pressed={temporary} aria-label={t("temporaryChat")} title={t("temporaryChat")} data-testid="temporary" onClick={() => newChat(!temporary)}>
            <Icon name="ghost" size={20} />
          </button>
        ) : temporary ? (
          <span class="badge">{t("temporaryChat")}</span>
        ) : null}
        {id !== null && !empty && !temporary && (
          <button type="button" class="ghost" aria-label={t("share")} title={t("share")} onClick={() => openShare(id)}>
            <Icon name="share" size={20} />
          </button>
        )}
        {head && !temporary && !empty && (
          <Menu
            label={t("chatOptions")}
            className="ghost"
            items={() => [
              { label: head.pinned ? t("unpin") : t("pin"), icon: "pin", run: () => void change(head, { pinned: !head.pinned }, null) },
              {
                label: head.archived ? t("unarchive") : t("archive"),
                icon: "archive",
                run: () => void changeConversation(head.id, { archived: !head.archived }).then(() => showToast(head.archived ? t("chatUnarchived") : t("chatArchived"))),
              },
              { label: t("exportChat"), icon: "download", run: () => location.assign(`/v1/export?format=markdown&conversation_id=${encodeURIComponent(head.id)}`) },
              { label: t("delete"), icon: "trash", danger: true, run: () => removeWithUndo(head) },
            ]}
          >
            <Icon name="dots" size={20} />
          </Menu>
        )}
        <button type="button" class={sidebarShown.value ? "ghost only-narrow" : "ghost"} aria-label={t("newChat")} title={t("newChat")} onClick={startNewChat}>
          <Icon name="compose" size={20} />
        </button>
      </div>
    </header>
  );
}
