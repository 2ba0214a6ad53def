import { Problem } from "../api";
import { t } from "../i18n";

/** Why the last send was not taken. */
export interface Notice {
  text: string;
  /** `Date.now()` from which the same send may be tried again. */
  readyAt: number | null;
  code?: string;
  requestId?: string | undefined;
  /** The model that was refused: another one may be tried at once. */
  model?: string | null;
  /** Which limit, what remains of it: what the server said beside its sentence. */
  body?: Record<string, unknown>;
}

/** What a failed call has to say; nothing where signing in again says it. */
export function noticeOf(error: unknown, model: string | null): Notice | null {
  const { status, code, requestId, body, message, retryAfterMs: wait } = error instanceof Problem ? error : new Problem(0, "internal", t("pageFailed"));
  if (status === 401) return null;
  return { text: message, readyAt: wait === undefined ? null : Date.now() + wait, code, requestId, model, body };
}
