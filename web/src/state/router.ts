import { signal } from "@preact/signals";

export type Place = "chat" | "operator" | "missing";

function read(): string | null {
  return /^\/c\/([A-Za-z0-9_-]+)\/?$/.exec(location.pathname)?.[1] ?? null;
}

function readPlace(): Place {
  if (location.pathname === "/operator") return "operator";
  return read() === null && !/^\/(index\.html)?$/.test(location.pathname) ? "missing" : "chat";
}

/** The conversation that the address names; `null` is the new chat. */
export const route = signal<string | null>(read());
/** The chat, the operator's page, or an address that leads nowhere. */
export const place = signal<Place>(readPlace());
/** A message to show, once its conversation is open. */
export const wantedMessage = signal<string | null>(null);

addEventListener("popstate", () => {
  place.value = readPlace();
  route.value = read();
});

export function pathOf(id: string | null): string {
  return id === null ? "/" : `/c/${id}`;
}

/** Goes to a conversation; `replace` keeps the history's length. */
export function go(id: string | null, replace = false): void {
  move(pathOf(id), replace);
  place.value = "chat";
  route.value = id;
}

export function goToOperator(): void {
  move("/operator", false);
  place.value = "operator";
}

/** Opens a conversation at one of its messages. */
export function goToMessage(conversation: string, message: string | null): void {
  wantedMessage.value = message;
  go(conversation);
}

function move(path: string, replace: boolean): void {
  if (location.pathname === path) return;
  if (replace) history.replaceState(null, "", path);
  else history.pushState(null, "", path);
}

/** The token of a shared chat, where the address is one's link. */
export function sharedToken(): string | null {
  return /^\/s\/([A-Za-z0-9_-]+)$/.exec(location.pathname)?.[1] ?? null;
}
