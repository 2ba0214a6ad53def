import { useEffect, useRef } from "preact/hooks";
import { t } from "../i18n";
import { folderItems, folders, groups, listLoaded, loadMoreConversations, nextPage, openFolders, pinnedItems, toggleFolder } from "../state/conversations";
import { goToOperator, place } from "../state/router";
import { me, signOut } from "../state/session";
import { drawerOpen, plainClick, sidebarShown, startNewChat, toggleSidebar } from "../state/sidebar";
import { fullest, limitName, shareOf, usage, usedOf } from "../state/usage";
import { openPalette, openSettings } from "../dialogs/open";
import { helpOpen } from "./Dialog";
import { Icon, Logo } from "./Icon";
import { Menu } from "./Menu";
import { Row, RowMenu } from "./Row";

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

function Folder({ name, count }: { name: string; count: number }) {
  const shown = openFolders.value.includes(name);
  return (
    <li class="folder">
      <button type="button" class="folder-head" aria-expanded={shown} onClick={() => void toggleFolder(name)}>
        <Icon name="folder" size={16} />
        <span class="row-title" dir="auto">
          {name}
        </span>
        <span class="folder-count">{count}</span>
      </button>
      {shown && (
        <ul>
          {folderItems(name).map((item) => (
            <Row key={item.id} item={item} />
          ))}
        </ul>
      )}
    </li>
  );
}

function Account() {
  const user = me.value;
  if (!user) return null;
  const operator = user.role !== "member" && user.scopes.includes("admin");
  const limit = fullest(usage.found.value?.limits ?? []);
  return (
    <Menu
      label={t("accountOf", user.name)}
      className="account"
      side="above"
      opened={() => void usage.read()}
      items={() => [
        { label: t("settings"), icon: "gear", run: () => openSettings() },
        ...(limit ? [{ label: t("tabUsage"), detail: `${limitName(limit)}: ${usedOf(limit)}`, icon: "clock" as const, share: shareOf(limit), run: () => openSettings("usage") }] : []),
        ...(operator ? [{ label: t("operator"), icon: "gauge" as const, run: goToOperator }] : []),
        { label: t("shortcuts"), icon: "keys", run: () => (helpOpen.value = true) },
        { label: t("signOut"), icon: "out", run: () => void signOut() },
      ]}
    >
      <span class="initial" aria-hidden="true" data-initial={(user.name || "?").slice(0, 1).toUpperCase()} />
      <span class="account-name" dir="auto">
        {user.name}
      </span>
      <Icon name="dots" size={16} />
    </Menu>
  );
}

/** What is covered by an open drawer is out of reach for the keyboard, too. */
function useDrawerFocus(): void {
  const open = drawerOpen.value;
  useEffect(() => {
    const main = document.getElementById("main");
    if (main) main.inert = open;
    if (!open) return undefined;
    // Not before the drawer is visible: what is hidden takes no focus.
    setTimeout(() => document.querySelector<HTMLElement>("#sidebar [data-testid=new-chat]")?.focus({ preventScroll: true }), 60);
    const close = (event: KeyboardEvent) => event.key === "Escape" && (drawerOpen.value = false);
    addEventListener("keydown", close);
    return () => {
      removeEventListener("keydown", close);
      if (main) main.inert = false;
    };
  }, [open]);
}

export function Sidebar() {
  useDrawerFocus();
  const pinned = pinnedItems.value;
  const empty = listLoaded.value && groups.value.length === 0 && pinned.length === 0 && folders.value.length === 0;
  return (
    <>
      <div class={drawerOpen.value ? "scrim shown" : "scrim"} onClick={() => (drawerOpen.value = false)} />
      <nav id="sidebar" class={drawerOpen.value ? "sidebar drawer-open" : sidebarShown.value ? "sidebar" : "sidebar closed"} aria-label={t("chats")}>
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
          <button type="button" class="ghost" aria-label={t("hideSidebar")} title={t("hideSidebar")} aria-controls="sidebar" onClick={toggleSidebar}>
            <Icon name="sidebar" size={20} />
          </button>
        </div>
        <div class="side-actions">
          <button type="button" class="side-action" data-testid="new-chat" aria-current={place.value === "chat" ? undefined : false} onClick={startNewChat}>
            <Icon name="compose" /> {t("newChat")}
          </button>
          <button type="button" class="side-action" data-testid="search" onClick={openPalette}>
            <Icon name="search" /> {t("search")}
          </button>
        </div>
        <div class="rows" tabIndex={-1}>
          {pinned.length > 0 && (
            <section aria-label={t("pinned")}>
              <h2>{t("pinned")}</h2>
              <ul>
                {pinned.map((item) => (
                  <Row key={item.id} item={item} />
                ))}
              </ul>
            </section>
          )}
          {folders.value.length > 0 && (
            <section aria-label={t("folders")}>
              <h2>{t("folders")}</h2>
              <ul>
                {folders.value.map((folder) => (
                  <Folder key={folder.name} name={folder.name} count={folder.count} />
                ))}
              </ul>
            </section>
          )}
          {groups.value.map((group) => (
            <section key={group.key} aria-label={group.label}>
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
          {empty && <p class="no-rows">{t("noChats")}</p>}
        </div>
        <RowMenu />
        <Account />
      </nav>
    </>
  );
}
