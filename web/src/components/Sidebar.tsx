import { signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api, Problem, type Conversation } from "../api";
import { groups, listLoaded, loadMoreConversations, nextPage, renameConversation, titleOf } from "../state/conversations";
import { go, pathOf, route } from "../state/router";
import { me, signOut } from "../state/session";
import { current, dropThread, isRunning, newChat } from "../state/threads";
import { confirmAction, helpOpen } from "./Dialog";
import { Icon, Logo } from "./Icon";
import { Menu } from "./Menu";

const WIDE = matchMedia("(min-width: 768px)");
const KEY = "antiphon.sidebar";

/** The column on wide screens. */
export const sidebarShown = signal(localStorage.getItem(KEY) !== "closed");
/** The drawer over the page on narrow ones. */
export const drawerOpen = signal(false);

export function toggleSidebar(): void {
  if (!WIDE.matches) {
    drawerOpen.value = !drawerOpen.value;
    return;
  }
  sidebarShown.value = !sidebarShown.value;
  localStorage.setItem(KEY, sidebarShown.value ? "open" : "closed");
}

WIDE.addEventListener("change", () => (drawerOpen.value = false));

function plainClick(event: MouseEvent): boolean {
  return event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
}

export function startNewChat(): void {
  drawerOpen.value = false;
  newChat();
  if (WIDE.matches) requestAnimationFrame(() => document.querySelector<HTMLElement>("[data-testid=composer]")?.focus());
}

async function remove(item: Conversation): Promise<void> {
  if (!(await confirmAction("Delete this chat?", `“${titleOf(item)}” will be gone for good.`, "Delete"))) return;
  try {
    await api.deleteConversation(item.id);
  } catch (error) {
    if (!(error instanceof Problem && error.status === 404)) {
      current.value.notice.value = { text: "The chat could not be deleted. Try again.", readyAt: null };
      return;
    }
  }
  dropThread(item.id);
}

function Row({ item }: { item: Conversation }) {
  const renaming = useSignal(false);
  const field = useRef<HTMLInputElement>(null);
  const active = route.value === item.id;
  useEffect(() => {
    if (renaming.value) field.current?.select();
  }, [renaming.value]);

  const save = async () => {
    const title = field.current?.value.trim() ?? "";
    renaming.value = false;
    if (title === "" || title === item.title) return;
    await renameConversation(item.id, title).catch(() => {
      current.value.notice.value = { text: "The chat could not be renamed. Try again.", readyAt: null };
    });
  };
  if (renaming.value) {
    return (
      <li class="row renaming">
        <input
          ref={field}
          value={titleOf(item)}
          maxLength={200}
          aria-label="Chat title"
          onBlur={() => void save()}
          onKeyDown={(event) => {
            if (event.isComposing || event.keyCode === 229) return;
            if (event.key === "Enter") void save();
            if (event.key === "Escape") {
              event.stopPropagation();
              renaming.value = false;
            }
          }}
        />
      </li>
    );
  }
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
        {isRunning(item.id) && <span class="running-dot" role="img" aria-label="Answering" />}
      </a>
      <Menu
        label={`Options for ${titleOf(item)}`}
        className="row-menu"
        items={[
          { label: "Rename", icon: "pencil", run: () => (renaming.value = true) },
          { label: "Delete", icon: "trash", danger: true, run: () => void remove(item) },
        ]}
      >
        <Icon name="dots" size={16} />
      </Menu>
    </li>
  );
}

function MoreRows() {
  const mark = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (!mark.current) return undefined;
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && void loadMoreConversations());
    observer.observe(mark.current);
    return () => observer.disconnect();
  }, [nextPage.value]);
  return <li ref={mark} class="more-rows" aria-hidden="true" />;
}

export function Sidebar() {
  const user = me.value;
  const empty = listLoaded.value && groups.value.length === 0;
  return (
    <>
      <div class={drawerOpen.value ? "scrim shown" : "scrim"} onClick={() => (drawerOpen.value = false)} />
      <nav id="sidebar" class={drawerOpen.value ? "sidebar drawer-open" : sidebarShown.value ? "sidebar" : "sidebar closed"} aria-label="Chats">
        <div class="sidebar-head">
          <a
            class="brand"
            href="/"
            onClick={(event) => {
              if (!plainClick(event)) return;
              event.preventDefault();
              startNewChat();
            }}
          >
            <Logo size={22} /> Antiphon
          </a>
          <button type="button" class="ghost" aria-label="Hide sidebar" aria-controls="sidebar" onClick={toggleSidebar}>
            <Icon name="sidebar" size={20} />
          </button>
        </div>
        <button type="button" class="new-chat" data-testid="new-chat" onClick={startNewChat}>
          <Icon name="compose" /> New chat
        </button>
        <div class="rows" tabIndex={-1}>
          {groups.value.map((group) => (
            <section key={group.label} aria-label={group.label}>
              <h2>{group.label}</h2>
              <ul>
                {group.items.map((item) => (
                  <Row key={item.id} item={item} />
                ))}
              </ul>
            </section>
          ))}
          {nextPage.value !== null && (
            <ul>
              <MoreRows />
            </ul>
          )}
          {empty && <p class="no-rows">Your chats will be listed here.</p>}
        </div>
        {user && (
          <Menu
            label="Account"
            className="account"
            side="above"
            items={[
              { label: "Keyboard shortcuts", icon: "keys", run: () => (helpOpen.value = true) },
              { label: "Sign out", icon: "out", run: () => void signOut() },
            ]}
          >
            <span class="initial" aria-hidden="true">
              {(user.name || "?").slice(0, 1).toUpperCase()}
            </span>
            <span class="account-name">{user.name}</span>
            <Icon name="dots" size={16} />
          </Menu>
        )}
      </nav>
    </>
  );
}
