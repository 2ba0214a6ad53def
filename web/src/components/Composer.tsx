import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { t } from "../i18n";
import { bytes } from "../i18n/format";
import { byteLength, isLong, lineCount, makeAttachment, MESSAGE_BYTES, splitAttachments, withAttachments } from "../state/attachments";
import { readDraft, writeDraft } from "../state/drafts";
import { chosenModel, models } from "../state/session";
import { settings } from "../state/settings";
import type { Thread } from "../state/thread";
import { Attachments } from "./Attachments";
import { ContextMeter } from "./ContextMeter";
import { Icon } from "./Icon";
import { editing } from "./Message";
import { Notice, refused } from "./Notice";

/** On a touch keyboard Enter makes a new line, as everywhere on phones. */
const touch = matchMedia("(pointer: coarse)");
const DRAFT_MS = 250;
const KEPT_CHARACTERS = 600_000;

function Queued({ thread, take }: { thread: Thread; take(text: string): void }) {
  const queued = thread.queued.value;
  if (queued === null) return null;
  return (
    <div class="queued" data-testid="queued">
      <button
        type="button"
        class="queued-text"
        title={t("edit")}
        onClick={() => {
          thread.queued.value = null;
          take(queued);
        }}
      >
        <b>{t("next")}</b> <span dir="auto">{splitAttachments(queued).text || t("attachment")}</span>
      </button>
      <button type="button" class="action" aria-label={t("removeNext")} onClick={() => (thread.queued.value = null)}>
        <Icon name="close" size={14} />
      </button>
    </div>
  );
}

/** The one line below the field: what the model is doing, or the reminder that models err. */
function Hint({ thread }: { thread: Thread }) {
  const model = models.value.find((item) => item.id === chosenModel.value);
  const text =
    model?.status === "loading"
      ? t("modelLoading")
      : model?.status === "down"
        ? t("modelDown")
        : model?.load === "full"
          ? t("highDemand")
          : thread.temporary.value
            ? t("temporaryHint")
            : settings.value.hint
              ? t("mistakes")
              : null;
  return <p class="hint">{text}</p>;
}

export function Composer({ thread }: { thread: Thread }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const files = useRef<HTMLInputElement>(null);
  const blank = useSignal(true);
  const tooLarge = useSignal<number | null>(null);
  const running = useComputed(() => thread.running.value !== null);
  const saving = useRef<ReturnType<typeof setTimeout>>(undefined);

  const content = () => withAttachments(field.current?.value ?? "", thread.attached.peek());
  const measure = () => {
    blank.value = (field.current?.value ?? "").trim() === "" && thread.attached.peek().length === 0;
    const size = byteLength(field.current?.value ?? "") + thread.attached.peek().reduce((sum, one) => sum + byteLength(one.text) + 130, 0);
    tooLarge.value = size > MESSAGE_BYTES ? size : null;
  };
  const grow = () => {
    const area = field.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, Math.max(120, innerHeight * 0.4))}px`;
    measure();
  };
  const put = (text: string) => {
    if (!field.current) return;
    const split = splitAttachments(text);
    field.current.value = split.text;
    if (split.attached.length > 0) thread.attached.value = [...thread.attached.peek(), ...split.attached];
    grow();
  };
  const save = () => {
    clearTimeout(saving.current);
    if (!field.current) return;
    const parts = [thread.unsent.peek(), thread.queued.peek(), content()].filter((part) => part !== null && part !== "");
    const draft = parts.join("\n\n");
    writeDraft(thread.id.peek(), draft.length > KEPT_CHARACTERS ? field.current.value : draft);
  };
  const saveSoon = () => {
    clearTimeout(saving.current);
    saving.current = setTimeout(save, DRAFT_MS);
  };
  const giveBack = (text: string) => {
    const typed = content();
    if (typed.startsWith(text)) return; // a draft that was kept has it already
    const rest = field.current?.value ?? "";
    put(rest.trim() === "" ? text : `${text}\n${rest}`);
    save();
  };
  const attach = (name: string, text: string) => {
    thread.attached.value = [...thread.attached.peek(), makeAttachment(name, text)];
    measure();
    saveSoon();
  };

  useLayoutEffect(() => {
    if (thread.attached.peek().length > 0) thread.attached.value = [];
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
    const text = content();
    if (!area || text.trim() === "" || tooLarge.value !== null || refused(thread)) return;
    const last = thread.views.value.at(-1);
    const queue = running.value || last?.data.value.role === "user";
    if (queue && (!running.value || thread.queued.value !== null)) return;
    thread.attached.value = [];
    put("");
    if (queue) {
      thread.queued.value = text;
      save();
      return;
    }
    area.focus();
    const sending = thread.send(text);
    save();
    if (!(await sending)) thread.returned.value = text;
  };

  const key = (event: KeyboardEvent) => {
    if (event.isComposing || event.keyCode === 229) return;
    const mod = event.ctrlKey || event.metaKey;
    if (event.key === "Enter" && !event.shiftKey && !event.altKey && (mod || (!touch.matches && settings.value.send === "enter"))) {
      event.preventDefault();
      void submit();
    } else if (event.key === "ArrowUp" && field.current?.value === "" && !running.value) {
      const mine = thread.views.value.findLast((view) => view.data.value.role === "user");
      if (!mine) return;
      event.preventDefault();
      editing.value = mine.key;
    }
  };

  const paste = (event: ClipboardEvent) => {
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (!isLong(text)) return;
    event.preventDefault();
    attach(t("pastedText", lineCount(text)), text);
  };

  const read = async (list: FileList | null | undefined) => {
    for (const file of list ?? []) {
      if (file.size > MESSAGE_BYTES) thread.notice.value = { text: t("fileTooLarge", file.name, bytes(file.size), bytes(MESSAGE_BYTES)), readyAt: null };
      else {
        const text = await file.text();
        if (/\0|\uFFFD/.test(text)) thread.notice.value = { text: t("fileNotText", file.name), readyAt: null };
        else attach(file.name, text);
      }
    }
  };

  useEffect(() => {
    const over = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      document.documentElement.dataset["dropping"] = "";
    };
    const leave = (event: DragEvent) => event.relatedTarget === null && delete document.documentElement.dataset["dropping"];
    const drop = (event: DragEvent) => {
      delete document.documentElement.dataset["dropping"];
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      void read(event.dataTransfer.files);
    };
    addEventListener("dragover", over);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", over);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  }, [thread]);

  const inline = (keyOf: string) => {
    const one = thread.attached.value.find((item) => item.key === keyOf);
    thread.attached.value = thread.attached.value.filter((item) => item.key !== keyOf);
    if (one && field.current) {
      field.current.value = [field.current.value, one.text].filter((part) => part !== "").join("\n");
      field.current.focus();
    }
    grow();
    save();
  };

  return (
    <div class="composer-wrap column">
      <Notice thread={thread} />
      <Queued thread={thread} take={giveBack} />
      <form
        class={thread.temporary.value ? "composer temporary" : "composer"}
        aria-label={t("message")}
        onSubmit={(event) => {
          event.preventDefault();
          if (running.value) thread.stop();
          else void submit();
        }}
        onClick={(event) => event.target === event.currentTarget && field.current?.focus()}
      >
        {thread.attached.value.length > 0 && (
          <Attachments
            list={thread.attached.value}
            inline={inline}
            remove={(keyOf) => {
              thread.attached.value = thread.attached.value.filter((item) => item.key !== keyOf);
              measure();
              save();
            }}
          />
        )}
        {tooLarge.value !== null && (
          <p class="too-large" role="alert">
            {t("messageTooLarge", bytes(tooLarge.value), bytes(MESSAGE_BYTES))}
          </p>
        )}
        <div class="composer-row">
          <button type="button" class="ghost attach" aria-label={t("attach")} title={t("attach")} onClick={() => files.current?.click()}>
            <Icon name="plus" size={20} />
          </button>
          <input
            ref={files}
            type="file"
            multiple
            hidden
            onChange={(event) => {
              void read(event.currentTarget.files);
              event.currentTarget.value = "";
            }}
          />
          <textarea
            ref={field}
            data-testid="composer"
            rows={1}
            dir="auto"
            placeholder={chosenModel.value === null ? t("askAnything") : t("messageTo", chosenModel.value)}
            aria-label={t("message")}
            enterkeyhint={touch.matches ? "enter" : "send"}
            onInput={() => {
              grow();
              saveSoon();
            }}
            onKeyDown={key}
            onPaste={paste}
          />
          <ContextMeter thread={thread} />
          {running.value ? (
            <button type="submit" class="round stop" data-testid="stop" aria-label={t("stop")} title={t("stopKey")}>
              <span class="stop-square" aria-hidden="true" />
            </button>
          ) : (
            <button type="submit" class="round" data-testid="send" aria-label={t("send")} title={t("send")} disabled={blank.value || tooLarge.value !== null || refused(thread)}>
              <Icon name="send" size={20} />
            </button>
          )}
        </div>
      </form>
      <Hint thread={thread} />
    </div>
  );
}
