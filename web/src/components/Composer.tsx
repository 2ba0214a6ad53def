import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { readDraft, writeDraft } from "../state/drafts";
import { chosenModel, models } from "../state/session";
import type { Thread } from "../state/thread";
import { Icon } from "./Icon";
import { editing } from "./Message";

/** On a touch keyboard Enter makes a new line, as everywhere on phones. */
const touch = matchMedia("(pointer: coarse)");
const DRAFT_MS = 250;

/** Seconds until `at`, counted down once a second. */
function useCountdown(at: number | null): number {
  const left = useSignal(0);
  useEffect(() => {
    const tick = () => (left.value = at === null ? 0 : Math.max(0, Math.ceil((at - Date.now()) / 1000)));
    tick();
    const timer = setInterval(tick, 250);
    return () => clearInterval(timer);
  }, [at]);
  return left.value;
}

function Notice({ thread }: { thread: Thread }) {
  const notice = thread.notice.value;
  const left = useCountdown(notice?.readyAt ?? null);
  if (!notice) return null;
  return (
    <div class="notice" role="status">
      <Icon name="alert" size={16} />
      <span>
        {notice.text}
        {left > 0 && <b class="countdown"> Ready in {left} s.</b>}
      </span>
      <button type="button" class="action" aria-label="Dismiss" onClick={() => (thread.notice.value = null)}>
        <Icon name="close" size={14} />
      </button>
    </div>
  );
}

function Queued({ thread, take }: { thread: Thread; take(text: string): void }) {
  const queued = thread.queued.value;
  if (queued === null) return null;
  return (
    <div class="queued">
      <button
        type="button"
        class="queued-text"
        title="Edit"
        onClick={() => {
          thread.queued.value = null;
          take(queued);
        }}
      >
        <b>Next:</b> {queued}
      </button>
      <button type="button" class="action" aria-label="Remove the next message" onClick={() => (thread.queued.value = null)}>
        <Icon name="close" size={14} />
      </button>
    </div>
  );
}

export function Composer({ thread }: { thread: Thread }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const blank = useSignal(true);
  const running = useComputed(() => thread.running.value !== null);
  const saving = useRef<ReturnType<typeof setTimeout>>(undefined);

  const grow = () => {
    const area = field.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, Math.max(120, innerHeight * 0.4))}px`;
    blank.value = area.value.trim() === "";
  };
  const put = (text: string) => {
    if (!field.current) return;
    field.current.value = text;
    grow();
  };
  const save = () => {
    clearTimeout(saving.current);
    if (!field.current) return;
    const parts = [thread.unsent.peek(), thread.queued.peek(), field.current.value];
    writeDraft(thread.id.peek(), parts.filter((part) => part !== null && part !== "").join("\n"));
  };
  const giveBack = (text: string) => {
    const typed = field.current?.value ?? "";
    if (typed.startsWith(text)) return; // a draft that was kept has it already
    put(typed.trim() === "" ? text : `${text}\n${typed}`);
    save();
  };

  useLayoutEffect(() => {
    put(readDraft(thread.id.peek()));
    if (!touch.matches) field.current?.focus({ preventScroll: true });
    return () => save();
  }, [thread]);

  useEffect(() => {
    addEventListener("pagehide", save);
    addEventListener("resize", grow);
    return () => {
      removeEventListener("pagehide", save);
      removeEventListener("resize", grow);
    };
  }, [thread]);

  useSignalEffect(() => {
    const text = thread.returned.value;
    if (text === null) return;
    thread.returned.value = null;
    giveBack(text);
  });

  const submit = async () => {
    const area = field.current;
    const text = area?.value ?? "";
    if (!area || text.trim() === "") return;
    const last = thread.views.value.at(-1);
    if (running.value || last?.data.value.role === "user") {
      if (!running.value || thread.queued.value !== null) return;
      thread.queued.value = text;
      put("");
      save();
      return;
    }
    put("");
    area.focus();
    const sending = thread.send(text);
    save();
    if (!(await sending)) thread.returned.value = text;
  };

  const key = (event: KeyboardEvent) => {
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Enter" && !event.shiftKey && !event.altKey && (!touch.matches || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      void submit();
    } else if (event.key === "ArrowUp" && field.current?.value === "" && !running.value) {
      const mine = thread.views.value.findLast((view) => view.data.value.role === "user");
      if (!mine) return;
      event.preventDefault();
      editing.value = mine.key;
    }
  };

  const input = () => {
    grow();
    clearTimeout(saving.current);
    saving.current = setTimeout(save, DRAFT_MS);
  };

  const model = models.value.find((item) => item.id === chosenModel.value);
  const loading = model?.status === "loading";
  return (
    <div class="composer-wrap column">
      <Notice thread={thread} />
      <Queued thread={thread} take={giveBack} />
      <form
        class="composer"
        aria-label="Message"
        onSubmit={(event) => {
          event.preventDefault();
          if (running.value) thread.stop();
          else void submit();
        }}
        onClick={(event) => event.target === event.currentTarget && field.current?.focus()}
      >
        <textarea ref={field} data-testid="composer" rows={1} dir="auto" placeholder="Ask anything" aria-label="Message" enterkeyhint={touch.matches ? "enter" : "send"} onInput={input} onKeyDown={key} />
        {running.value ? (
          <button type="submit" class="round stop" data-testid="stop" aria-label="Stop" title="Stop (Esc)">
            <span class="stop-square" aria-hidden="true" />
          </button>
        ) : (
          <button type="submit" class="round" data-testid="send" aria-label="Send" title="Send" disabled={blank.value}>
            <Icon name="send" size={20} />
          </button>
        )}
      </form>
      <p class="hint">{loading ? "The model is loading. You can write meanwhile." : model?.status === "down" ? "The model is not running at the moment." : "Models make mistakes. Check what matters."}</p>
    </div>
  );
}
