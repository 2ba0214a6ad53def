import type { Signal } from "@preact/signals";
import { Problem } from "../api";
import { t } from "../i18n";

/** Waits between the attempts of a request that got no answer. */
const RETRY_MS = [600, 1500, 3000, 6000];

/** Repeats `run` while no answer comes; it must be safe to repeat (an idempotency key). `offline` tells the reader meanwhile. */
export async function patiently<T>(offline: Signal<boolean>, run: () => Promise<T>): Promise<T> {
  for (const delay of [...RETRY_MS, null]) {
    try {
      const result = await run();
      offline.value = false;
      return result;
    } catch (error) {
      const lost = error instanceof Problem && (error.status === 0 || error.status === 502 || error.status === 504);
      if (!lost || delay === null) throw error;
      offline.value = true;
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }
  throw new Problem(0, "network", t("unreachable"));
}
