import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { t, type Key } from "../i18n";
import { duration, number, percent } from "../i18n/format";
import type { MessageView } from "../state/message";
import type { Thread } from "../state/thread";
import type { StatusData } from "../stream";
import { Icon } from "./Icon";

interface OutcomeProps {
  view: MessageView;
  thread: Thread;
}

/** What an answer is waiting for, in words. */
export function waitText(status: StatusData | null): string | null {
  if (status === null) return null;
  if (status.state === "queued" && "position" in status) return t("queued", number(status.position), status.eta_ms ? duration(status.eta_ms) : null);
  if (status.state === "prefill" && "total" in status) return status.total > 0 ? t("readingShare", percent(Math.min(1, status.done / status.total))) : t("reading");
  if (status.state === "starting" && "position" in status) return t("startingModel", status.position > 1 ? number(status.position) : null, status.eta_ms ? duration(status.eta_ms) : null);
  return null;
}

/** Reading is only worth a word when it takes longer than this. */
const READING_MS = 1000;

/** Whether `kind` has been going on for longer than `ms`. */
function useLonger(kind: string | null, ms: number): boolean {
  const longer = useSignal(false);
  useEffect(() => {
    longer.value = false;
    if (kind === null) return undefined;
    const timer = setTimeout(() => (longer.value = true), ms);
    return () => clearTimeout(timer);
  }, [kind]);
  return longer.value;
}

/** The line in the place of the text that is not there yet, or under a text whose stream is broken. */
export function Waiting({ view }: { view: MessageView }) {
  const text = view.text.value;
  const status = view.wait.value;
  const offline = view.offline.value;
  const broken = useLonger(offline ? "offline" : null, READING_MS);
  const reads = !view.pending.value && (status === null || status.state === "prefill");
  const longReading = useLonger(reads ? "reading" : null, READING_MS);
  const waiting = text === "" && view.reasoning.value === "";
  const words = view.stopping.value
    ? t("stopping")
    : offline && (broken || waiting)
      ? t("reconnecting")
      : waiting && reads
        ? longReading
          ? (waitText(status) ?? t("reading"))
          : null
        : waiting
          ? waitText(status)
          : null;
  if (words === null && !waiting) return null;
  return (
    <div class="waiting" data-testid="status">
      <span class="pulse" aria-hidden="true" />
      <span class="waiting-text">{words}</span>
    </div>
  );
}

export function Downgraded({ view }: { view: MessageView }) {
  const { model, requested_model: requested } = view.data.value;
  const live = view.downgrade.value;
  const to = live?.to ?? (requested && model && requested !== model ? model : null);
  if (!to) return null;
  return (
    <p class="downgraded" data-testid="downgraded">
      <Icon name="sparkle" size={14} />
      {t("downgraded", to, live?.from ?? requested ?? "")}
    </p>
  );
}

/** From here on the model does not read everything above: said where it begins. */
export function LeftOut({ view }: { view: MessageView }) {
  const context = view.data.value.context;
  if (!context || context.omitted === 0) return null;
  const count = number(context.omitted);
  return (
    <p class="left-out" data-testid="left-out">
      <span>
        {context.summarised ? t("summarised", count) : t("leftOut", count)}
        {context.snippets > 0 && ` · ${t("foundAgain", number(context.snippets))}`}
      </span>
    </p>
  );
}

/** Errors that we can say better than the machine. */
const FAILURES: Record<string, Key> = {
  queue_timeout: "failedQueue",
  engine_failed: "failedEngine",
  moderated: "failedModerated",
  deleted: "failedDeleted",
  no_capacity: "noCapacity",
};

function Failure({ view, thread }: OutcomeProps) {
  const { error, status, generation_id: generation } = view.data.value;
  const known = FAILURES[error?.code ?? ""];
  return (
    <div class="failure" role="group" aria-label={t("answerFailed")}>
      <Icon name="alert" size={18} />
      <div class="failure-text">
        <p dir="auto">{known ? t(known) : error?.message || t("answerFailed")}</p>
        {(error?.code || generation) && (
          <details class="more">
            <summary>{t("details")}</summary>
            {known && error?.message && <p dir="auto">{error.message}</p>}
            <code>{[error?.code, generation].filter(Boolean).join(" · ")}</code>
          </details>
        )}
      </div>
      {status === "failed" && (
        <button type="button" class="button small" data-testid="regenerate" disabled={thread.running.value !== null} onClick={() => void thread.regenerate(view)}>
          {t("retry")}
        </button>
      )}
    </div>
  );
}

/** How an answer ended, where that is more than "here it is". */
export function Outcome({ view, thread }: OutcomeProps) {
  const { status, finish_reason: reason, error } = view.data.value;
  const last = thread.views.value.at(-1) === view;
  if (status === "failed" || (status === "interrupted" && !last)) return <Failure view={view} thread={thread} />;
  const note =
    status === "cancelled"
      ? t("youStopped")
      : status === "interrupted"
        ? error?.message || t("interrupted")
        : reason === "length"
          ? t("lengthReached")
          : reason === "content_filter"
            ? t("failedModerated")
            : null;
  if (!note) return view.text.value === "" && status === "complete" ? <p class="note">{t("nothingReturned")}</p> : null;
  return (
    <div class="note">
      <span dir="auto">{note}</span>
      {last && reason !== "content_filter" && (
        <button type="button" class="button small" data-testid="continue" disabled={thread.running.value !== null} onClick={() => void thread.continueAnswer(view)}>
          <Icon name="play" size={14} />
          {t("continue")}
        </button>
      )}
    </div>
  );
}
