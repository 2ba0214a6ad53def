import { signal } from "@preact/signals";

function read(): string | null {
  return /^\/c\/([A-Za-z0-9_-]+)\/?$/.exec(location.pathname)?.[1] ?? null;
}

/** The conversation that the address names; `null` is the new chat. */
export const route = signal<string | null>(read());

addEventListener("popstate", () => {
  route.value = read();
});

export function pathOf(id: string | null): string {
  return id === null ? "/" : `/c/${id}`;
}

/** Goes to a conversation; `replace` keeps the history's length. */
export function go(id: string | null, replace = false): void {
  const path = pathOf(id);
  if (location.pathname !== path) {
    if (replace) history.replaceState(null, "", path);
    else history.pushState(null, "", path);
  }
  route.value = id;
}
