import { signal } from "@preact/signals";

export interface Toast {
  id: number;
  text: string;
  action: { label: string; run(): void } | null;
}

const SHOWN_MS = 4000;
const UNDO_MS = 6000;

export const toast = signal<Toast | null>(null);
/** What screen readers are told, apart from the newest answer's state. */
export const announced = signal("");

let made = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
let left = 0;
let since = 0;

/** Shows one short text for a while; one at a time. With an action it stays a little longer. */
export function showToast(text: string, action: Toast["action"] = null): void {
  made += 1;
  toast.value = { id: made, text, action };
  announced.value = text;
  left = action ? UNDO_MS : SHOWN_MS;
  resumeToast();
}

export function hideToast(): void {
  clearTimeout(timer);
  toast.value = null;
}

/** The pointer or the focus is on it: it stays. */
export function pauseToast(): void {
  clearTimeout(timer);
  left -= performance.now() - since;
}

export function resumeToast(): void {
  clearTimeout(timer);
  since = performance.now();
  timer = setTimeout(hideToast, Math.max(left, 1000));
}
