import { signal } from "@preact/signals";
import { api, Problem } from "../api";
import { route } from "./router";

/** Which conversations have an answer running or ended unseen: of all tabs of this browser, and after a reload. */

const RUNS_KEY = "antiphon.running";
const UNSEEN_KEY = "antiphon.unseen";
const LOOK_MS = 4000;

function read<T>(key: string, otherwise: T): T {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "") as T;
  } catch {
    return otherwise;
  }
}

function keep(key: string, value: unknown): void {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // The badges are then this tab's alone.
  }
}

/** Generation by conversation. */
export const runs = signal<Record<string, string>>(read(RUNS_KEY, {}));
export const unseen = signal<string[]>(read(UNSEEN_KEY, []));

export function started(conversation: string, generation: string): void {
  if (runs.peek()[conversation] === generation) return;
  runs.value = { ...runs.peek(), [conversation]: generation };
  keep(RUNS_KEY, runs.peek());
}

export function finished(conversation: string, generation: string): void {
  if (runs.peek()[conversation] !== generation) return;
  const rest = { ...runs.peek() };
  delete rest[conversation];
  runs.value = rest;
  keep(RUNS_KEY, rest);
  if (route.peek() === conversation && !document.hidden) return;
  unseen.value = [...new Set([...unseen.peek(), conversation])].slice(-100);
  keep(UNSEEN_KEY, unseen.peek());
}

export function seen(conversation: string | null): void {
  if (conversation === null || !unseen.peek().includes(conversation)) return;
  unseen.value = unseen.peek().filter((id) => id !== conversation);
  keep(UNSEEN_KEY, unseen.peek());
}

export function forgetActivity(): void {
  localStorage.removeItem(RUNS_KEY);
  localStorage.removeItem(UNSEEN_KEY);
}

/** Asks about answers that no open stream of this tab follows. */
export function watchActivity(isFollowed: (conversation: string) => boolean): void {
  addEventListener("storage", (event) => {
    if (event.key === RUNS_KEY) runs.value = read(RUNS_KEY, {});
    if (event.key === UNSEEN_KEY) unseen.value = read(UNSEEN_KEY, []);
  });
  setInterval(() => {
    if (document.hidden) return;
    for (const [conversation, generation] of Object.entries(runs.peek())) if (!isFollowed(conversation)) void look(conversation, generation);
  }, LOOK_MS);
}

async function look(conversation: string, generation: string): Promise<void> {
  try {
    const { status } = await api.generation(generation);
    if (status !== "queued" && status !== "running") finished(conversation, generation);
  } catch (error) {
    if (error instanceof Problem && error.status === 404) finished(conversation, generation);
  }
}
