import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { language, t } from "../i18n";
import { duration, moment, number } from "../i18n/format";
import { chosenModel } from "../state/session";
import type { Notice as NoticeData } from "../state/notice";
import type { Thread } from "../state/thread";
import { Icon } from "./Icon";

/** Whether the server asked to wait before the same is sent again, and that time is not over. */
export function refused(thread: Thread): boolean {
  const notice = thread.notice.value;
  if (!notice || notice.readyAt === null || notice.readyAt <= Date.now()) return false;
  return !notice.model || notice.model === chosenModel.value;
}

/** Milliseconds until `at`, counted down; 0 afterwards. */
function useCountdown(at: number | null): number {
  const left = useSignal(0);
  useEffect(() => {
    const tick = () => (left.value = at === null ? 0 : Math.max(0, at - Date.now()));
    tick();
    const timer = setInterval(tick, 250);
    return () => clearInterval(timer);
  }, [at]);
  return left.value;
}

const TITLES = {
  rate_limited: "rateLimited",
  quota_exhausted: "quotaExhausted",
  concurrency_limited: "concurrencyLimited",
  high_demand: "highDemandTitle",
  no_capacity: "noCapacity",
  draining: "draining",
  prompt_too_long: "promptTooLong",
  message_too_large: "messageTooLargeTitle",
  network: "offlineTitle",
} as const;

/** What the server counted, where it said so. */
function facts(notice: NoticeData): string {
  const body = notice.body ?? {};
  const { prompt_tokens: prompt, limit_tokens: limit, remaining, resets_at: resets } = body;
  if (typeof prompt === "number" && typeof limit === "number") return t("promptOfLimit", number(prompt), number(limit));
  const parts: string[] = [];
  if (typeof remaining === "number") parts.push(t("remaining", number(remaining)));
  if (typeof resets === "string") parts.push(t("resetsAt", moment(resets)));
  return parts.join(" · ");
}

/** Why the last send was not taken, and when it may be tried again; it goes by itself when that time has come. */
export function Notice({ thread }: { thread: Thread }) {
  const notice = thread.notice.value;
  const left = useCountdown(notice?.readyAt ?? null);
  useEffect(() => {
    if (notice?.readyAt && left === 0 && notice.readyAt <= Date.now()) thread.notice.value = null;
  }, [notice, left]);
  if (!notice) return null;
  const title = TITLES[notice.code as keyof typeof TITLES];
  const said = facts(notice);
  return (
    <div class="notice" data-testid="notice" role="alert">
      <Icon name={left > 0 ? "clock" : notice.code === "network" ? "cloudOff" : "alert"} size={18} />
      <div class="notice-text">
        {title && <b>{t(title)} </b>}
        <span dir="auto">{said || (title && language.value !== "en" ? "" : notice.text)}</span>
        {left > 0 && <span class="countdown"> {t("readyIn", duration(left))}</span>}
        {notice.requestId && left === 0 && (
          <details class="more">
            <summary>{t("details")}</summary>
            <code>
              {notice.code} · {notice.requestId}
            </code>
          </details>
        )}
      </div>
      <button type="button" class="action" aria-label={t("dismiss")} onClick={() => (thread.notice.value = null)}>
        <Icon name="close" size={14} />
      </button>
    </div>
  );
}
