import type { Signal } from "@preact/signals";
import { Problem } from "../api";
import { online } from "./network";

/** Waits between the attempts of a request that got no answer. */
const RETRY_MS = [600, 1500, 3000, 6000];

/** Resolves when the browser has a network. */
function untilOnline(): Promise<void> {
  return new Promise((resolve) => {
    const end = online.subscribe((is) => {
      if (!is) return;
      queueMicrotask(() => end());
      resolve();
    });
  });
}

/**
 * Repeats `run` while no answer comes; it must be safe to repeat (an idempotency key). `offline` tells the reader meanwhile. A browser
 * that has no network waits for one, however long that takes.
 */
export async function patiently<T>(offline: Signal<boolean>, run: () => Promise<T>): Promise<T> {
  const delays = RETRY_MS.values();
  for (;;) {
    try {
      const result = await run();
      offline.value = false;
      return result;
    } catch (error) {
      const lost = error instanceof Problem && (error.status === 0 || error.status === 502 || error.status === 504);
      if (!lost) throw error;
      offline.value = true;
      if (!online.peek()) await untilOnline();
      else {
        const { value: delay } = delays.next();
        if (delay === undefined) throw error;
        await new Promise((resolve) => setTimeout(resolve, delay));
      }
    }
  }
}
