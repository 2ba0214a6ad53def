import { effect, signal } from "@preact/signals";
import { copyText } from "../clipboard";
import { openPalette } from "../dialogs/open";
import { t } from "../i18n";
import { currentTitle } from "../state/conversations";
import { session } from "../state/session";
import { settings } from "../state/settings";
import { startNewChat, toggleSidebar } from "../state/sidebar";
import { current } from "../state/threads";
import { showToast } from "../state/toast";
import { helpOpen } from "./Dialog";

/** What the whole page does: shortcuts, and a mark in the tab when an answer ended behind it. */

/** An answer ended while the page was hidden. */
export const finishedHidden = signal(false);

export function startPage(): void {
  let was = false;
  effect(() => {
    const running = session.value === "in" && current.value.running.value !== null;
    if (was && !running && document.hidden) finishedBehind();
    was = running;
  });
  effect(() => {
    const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
    if (icon) icon.href = finishedHidden.value ? "/favicon-done.svg" : "/favicon.svg";
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) finishedHidden.value = false;
  });
}

function finishedBehind(): void {
  finishedHidden.value = true;
  if (!settings.peek().notify || !("Notification" in globalThis) || Notification.permission !== "granted") return;
  const told = new Notification(currentTitle.peek() ?? "Antiphon", { body: t("answerReady"), icon: "/favicon.svg", tag: "antiphon" });
  told.onclick = () => {
    focus();
    told.close();
  };
}

export function shortcuts(event: KeyboardEvent): void {
  if (event.isComposing || event.defaultPrevented || session.value !== "in") return;
  const mod = event.metaKey || event.ctrlKey;
  const composer = document.querySelector<HTMLTextAreaElement>("[data-testid=composer]");
  if (event.key === "Escape" && !document.querySelector("dialog[open], [popover=auto]:popover-open")) {
    if (event.shiftKey) composer?.focus();
    else if (current.value.running.value) current.value.stop();
    else return;
    event.preventDefault();
  } else if (mod && event.shiftKey && !event.altKey) {
    const run = { KeyO: startNewChat, KeyS: toggleSidebar, KeyC: copyLast, Semicolon: copyLastCode }[event.code];
    if (!run) return;
    event.preventDefault();
    run();
  } else if (mod && !event.altKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
  } else if (mod && event.key === "/") {
    event.preventDefault();
    helpOpen.value = true;
  }
}

async function copyAndSay(text: string): Promise<void> {
  showToast((await copyText(text)) ? t("copied") : t("copyRefused"));
}

function copyLast(): void {
  const last = current.value.views.value.findLast((view) => view.data.value.role === "assistant");
  if (last) void copyAndSay(last.text.value);
}

function copyLastCode(): void {
  const code = [...document.querySelectorAll(".prose .code code")].at(-1)?.textContent;
  if (code) void copyAndSay(code.replace(/\n$/, ""));
}
