import { signal } from "@preact/signals";

export type Tab = "general" | "personal" | "models" | "data" | "usage" | "account";

type Opened = { kind: "settings"; tab: Tab } | { kind: "palette" } | { kind: "share"; id: string } | { kind: "move"; id: string } | { kind: "prompt"; generation: string };

/** The dialog that is open; its code comes when it is first opened. */
export const opened = signal<Opened | null>(null);

export const closeDialog = (): void => void (opened.value = null);
export const openSettings = (tab: Tab = "general"): void => void (opened.value = { kind: "settings", tab });
export const openPalette = (): void => void (opened.value = { kind: "palette" });
export const openShare = (id: string): void => void (opened.value = { kind: "share", id });
export const openMove = (id: string): void => void (opened.value = { kind: "move", id });
export const openPrompt = (generation: string): void => void (opened.value = { kind: "prompt", generation });
