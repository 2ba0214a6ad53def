import { signal } from "@preact/signals";
import { newChat } from "./threads";

export const WIDE = matchMedia("(min-width: 768px)");
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

export function plainClick(event: MouseEvent): boolean {
  return event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
}

export function startNewChat(): void {
  drawerOpen.value = false;
  newChat();
  if (WIDE.matches) requestAnimationFrame(() => document.querySelector<HTMLElement>("[data-testid=composer]")?.focus());
}
