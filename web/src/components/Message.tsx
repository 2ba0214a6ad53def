import { signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { copyText } from "../clipboard";
import type { MessageView } from "../state/message";
import type { Thread } from "../state/thread";
import type { StatusData } from "../stream";
import { Icon, type IconName } from "./Icon";
import { Markdown } from "./Markdown";

/** The message whose editor is open. */
export const editing = signal<string | null>(null);

interface MessageProps {
  view: MessageView;
  thread: Thread;
}

interface ActionProps {
  icon: IconName;
  label: string;
  testid?: string;
  run(): void;
  disabled?: boolean;
}

function Action({ icon, label, testid, run, disabled = false }: ActionProps) {
  return (
    <button type="button" class="action" data-testid={testid} aria-label={label} title={label} disabled={disabled} onClick={run}>
      <Icon name={icon} size={16} />
    </button>
  );
}

function CopyAction({ text }: { text: () => string }) {
  const state = useSignal<"idle" | "done" | "refused">("idle");
  const copy = async () => {
    state.value = (await copyText(text())) ? "done" : "refused";
    setTimeout(() => (state.value = "idle"), 2000);
  };
  const label = state.value === "done" ? "Copied" : state.value === "refused" ? "The browser refused to copy" : "Copy";
  return <Action icon={state.value === "done" ? "check" : state.value === "refused" ? "alert" : "copy"} label={label} testid="copy" run={() => void copy()} />;
}

function Branches({ view, thread }: MessageProps) {
  const siblings = view.siblings.value;
  if (siblings.length < 2) return null;
  const at = siblings.indexOf(view.id);
  const busy = thread.running.value?.pending.value === true;
  return (
    <div class="branches" role="group" aria-label="Versions">
      <Action icon="left" label="Previous version" testid="branch-prev" disabled={at <= 0 || busy} run={() => void thread.turnTo(view, -1)} />
      <span class="branch-count">
        {at + 1}/{siblings.length}
      </span>
      <Action icon="right" label="Next version" testid="branch-next" disabled={at >= siblings.length - 1 || busy} run={() => void thread.turnTo(view, 1)} />
    </div>
  );
}

function Editor({ view, thread }: MessageProps) {
  const field = useRef<HTMLTextAreaElement>(null);
  const empty = useSignal(false);
  const close = () => (editing.value = null);
  const grow = () => {
    const area = field.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, innerHeight * 0.5)}px`;
    empty.value = area.value.trim() === "";
  };
  useEffect(() => {
    const area = field.current;
    if (!area) return;
    area.value = view.text.peek();
    grow();
    area.focus({ preventScroll: true });
    area.closest(".editor")?.scrollIntoView({ block: "nearest" });
    area.setSelectionRange(area.value.length, area.value.length);
  }, []);
  const send = async () => {
    const text = field.current?.value ?? "";
    if (text.trim() === "") return;
    close();
    if (!(await thread.edit(view, text))) {
      editing.value = view.key;
      requestAnimationFrame(() => {
        const area = document.querySelector<HTMLTextAreaElement>(".editor textarea");
        if (area) area.value = text;
      });
    }
  };
  const key = (event: KeyboardEvent) => {
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      void send();
    }
  };
  return (
    <div class="editor">
      <textarea ref={field} rows={1} dir="auto" aria-label="Edit message" onInput={grow} onKeyDown={key} />
      <div class="editor-actions">
        <button type="button" class="button" onClick={close}>
          Cancel
        </button>
        <button type="button" class="button primary" disabled={empty.value} onClick={() => void send()}>
          Send
        </button>
      </div>
    </div>
  );
}

export function UserMessage({ view, thread }: MessageProps) {
  const data = view.data.value;
  return (
    <article class="message user" data-testid="message" data-message-id={data.id} data-status={data.status} data-role="user" aria-label="You said">
      {editing.value === view.key ? (
        <Editor view={view} thread={thread} />
      ) : (
        <>
          <div class="bubble" dir="auto">
            {view.text.value}
          </div>
          <div class="actions">
            <CopyAction text={() => view.text.peek()} />
            <Action icon="pencil" label="Edit" testid="edit" disabled={thread.running.value !== null} run={() => (editing.value = view.key)} />
            <Branches view={view} thread={thread} />
          </div>
        </>
      )}
    </article>
  );
}

function seconds(ms: number): string {
  const total = Math.max(1, Math.round(ms / 1000));
  return total < 60 ? `${total} s` : `${Math.round(total / 60)} min`;
}

/** What an answer is waiting for, in words. */
export function waitText(status: StatusData | null): string | null {
  if (status === null) return null;
  if (status.state === "queued" && "position" in status) {
    const eta = status.eta_ms === null || status.eta_ms === undefined ? "" : ` · about ${seconds(status.eta_ms)}`;
    return `Queued · position ${status.position}${eta}`;
  }
  if (status.state === "prefill" && "total" in status) return status.total > 0 ? `Reading · ${Math.round((100 * status.done) / status.total)} %` : "Reading";
  if (status.state === "downgraded" && "to" in status) return `Answered by ${status.to}`;
  return null;
}

function Waiting({ view }: { view: MessageView }) {
  const text = view.text.value;
  const stopping = view.stopping.value;
  const words = stopping ? "Stopping" : view.offline.value ? "Reconnecting" : text === "" ? waitText(view.wait.value) : null;
  if (words === null && text !== "") return null;
  return (
    <div class="waiting" data-testid="status">
      <span class="pulse" aria-hidden="true" />
      <span class="waiting-text">{words}</span>
    </div>
  );
}

const NOTES: Record<string, string> = {
  cancelled: "You stopped this answer.",
  length: "The answer reached its length limit.",
  interrupted: "The answer was interrupted.",
};

function Outcome({ view, thread }: MessageProps) {
  const { status, finish_reason: reason, error } = view.data.value;
  const busy = thread.running.value !== null;
  const last = thread.views.value.at(-1) === view;
  const retry = () => void thread.regenerate(view);
  if (status === "failed" || (status === "interrupted" && !last)) {
    return (
      <div class="failure">
        <Icon name="alert" size={18} />
        <p>{error?.message || "This answer failed."}</p>
        {status === "failed" && (
          <button type="button" class="button" data-testid="regenerate" disabled={busy} onClick={retry}>
            Retry
          </button>
        )}
      </div>
    );
  }
  const note = status === "cancelled" ? NOTES["cancelled"] : status === "interrupted" ? error?.message || NOTES["interrupted"] : reason === "length" ? NOTES["length"] : null;
  if (!note) return view.text.value === "" && status === "complete" ? <p class="note">The model returned nothing.</p> : null;
  return (
    <div class="note">
      <span>{note}</span>
      {last && (
        <button type="button" class="button small" data-testid="continue" disabled={busy} onClick={() => void thread.continueAnswer(view)}>
          <Icon name="play" size={14} />
          Continue
        </button>
      )}
    </div>
  );
}

function facts(view: MessageView): string {
  const { model, requested_model: requested, output_tokens: tokens } = view.data.value;
  const name = model ? (requested && requested !== model ? `${model} (asked for ${requested})` : model) : "";
  return [name, tokens === null ? "" : `${tokens} tokens`].filter(Boolean).join(" · ");
}

export function AssistantMessage({ view, thread }: MessageProps) {
  const data = view.data.value;
  const streaming = data.status === "streaming";
  return (
    <article class="message assistant" data-testid="message" data-message-id={data.id} data-status={data.status} data-role="assistant" aria-label="Antiphon said" aria-busy={streaming}>
      <Markdown text={view.text} live={streaming} />
      {streaming ? <Waiting view={view} /> : <Outcome view={view} thread={thread} />}
      <div class={streaming ? "actions hidden" : "actions"}>
        {!streaming && (
          <>
            <CopyAction text={() => view.text.peek()} />
            {data.status !== "failed" && (
              <Action icon="refresh" label="Regenerate" testid="regenerate" disabled={thread.running.value !== null} run={() => void thread.regenerate(view)} />
            )}
            <Branches view={view} thread={thread} />
            <span class="facts">{facts(view)}</span>
          </>
        )}
      </div>
    </article>
  );
}
