import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { api } from "../api";
import { t, type Key } from "../i18n";
import type { MessageView } from "../state/message";
import { showToast } from "../state/toast";
import { Action } from "./Action";

/** The reasons as they are stored; each with its words. */
const REASONS = [
  ["wrong", "reasonWrong"],
  ["not_followed", "reasonNotFollowed"],
  ["too_long", "reasonTooLong"],
  ["too_short", "reasonTooShort"],
  ["style", "reasonStyle"],
  ["unsafe", "reasonUnsafe"],
] as const satisfies readonly (readonly [string, Key])[];

async function give(view: MessageView, rating: 1 | -1 | 0, more: { reasons?: string[]; comment?: string } = {}): Promise<boolean> {
  const before = view.rating.value;
  view.rating.value = rating;
  try {
    await api.feedback(view.id, { rating, ...more });
    return true;
  } catch {
    view.rating.value = before;
    showToast(t("feedbackFailed"));
    return false;
  }
}

export function Thumbs({ view, ask }: { view: MessageView; ask(open: boolean): void }) {
  const rating = view.rating.value;
  const press = (value: 1 | -1) => {
    const next = rating === value ? 0 : value;
    ask(next === -1);
    void give(view, next);
  };
  return (
    <>
      <Action icon="up" label={t("goodAnswer")} testid="thumb-up" pressed={rating === 1} run={() => press(1)} />
      <Action icon="thumbDown" label={t("badAnswer")} testid="thumb-down" pressed={rating === -1} run={() => press(-1)} />
    </>
  );
}

/** Asks, without being in the way, what was wrong with an answer; the thumb counts without it, too. */
export function Reasons({ view, close }: { view: MessageView; close(): void }) {
  const chosen = useSignal<readonly string[]>([]);
  const comment = useRef<HTMLTextAreaElement>(null);
  const send = async () => {
    const text = comment.current?.value.trim() ?? "";
    const more = { reasons: [...chosen.value], ...(text ? { comment: text.slice(0, 4000) } : {}) };
    if (await give(view, -1, more)) {
      close();
      showToast(t("feedbackThanks"));
    }
  };
  const toggle = (reason: string) => (chosen.value = chosen.value.includes(reason) ? chosen.value.filter((other) => other !== reason) : [...chosen.value, reason]);
  return (
    <section class="reasons" aria-label={t("whatWasWrong")} data-testid="reasons">
      <p>{t("whatWasWrong")}</p>
      <div class="reason-chips">
        {REASONS.map(([reason, words]) => (
          <button key={reason} type="button" class="reason" aria-pressed={chosen.value.includes(reason)} onClick={() => toggle(reason)}>
            {t(words)}
          </button>
        ))}
      </div>
      <textarea ref={comment} rows={2} maxLength={4000} dir="auto" placeholder={t("commentOptional")} aria-label={t("commentOptional")} />
      <div class="dialog-actions">
        <button type="button" class="button small" onClick={close}>
          {t("skip")}
        </button>
        <button type="button" class="button small primary" onClick={() => void send()}>
          {t("submit")}
        </button>
      </div>
    </section>
  );
}
