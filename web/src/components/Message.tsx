import { signal, useComputed, useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { t } from "../i18n";
import { duration } from "../i18n/format";
import { holdPlace } from "../scroll";
import { splitAttachments } from "../state/attachments";
import { branchOff } from "../state/branching";
import type { MessageView } from "../state/message";
import { models } from "../state/session";
import { canSpeak, hush, speak, speaking } from "../state/speech";
import type { Thread } from "../state/thread";
import { Action, CopyAction } from "./Action";
import { SentAttachment } from "./Attachments";
import { Reasons, Thumbs } from "./Feedback";
import { Icon } from "./Icon";
import { Info } from "./Info";
import { Markdown } from "./Markdown";
import { Menu, type MenuItem } from "./Menu";
import { Downgraded, Outcome, Waiting } from "./Outcome";

/** The message whose editor is open. */
export const editing = signal<string | null>(null);

interface MessageProps {
  view: MessageView;
  thread: Thread;
}

function Branches({ view, thread }: MessageProps) {
  const siblings = view.siblings.value;
  const at = siblings.indexOf(view.id);
  const busy = thread.running.value?.pending.value === true;
  const group = useRef<HTMLDivElement>(null);
  /** The neighbour's arrows come where these are, and the focus goes to them. */
  const turn = async (step: 1 | -1) => {
    const [target, pane] = [siblings[at + step], group.current?.closest(".pane")];
    if (target === undefined || !group.current || !pane) return;
    const { top } = group.current.getBoundingClientRect();
    holdPlace();
    await thread.turnTo(view, step);
    requestAnimationFrame(() => {
      const arrows = pane.querySelector(`[data-message-id="${CSS.escape(target)}"] .branches`);
      if (!arrows) return;
      pane.scrollTop += arrows.getBoundingClientRect().top - top;
      const same = arrows.querySelector<HTMLElement>(`[data-testid=${step < 0 ? "branch-prev" : "branch-next"}]:not(:disabled)`);
      (same ?? arrows.querySelector<HTMLElement>("button:not(:disabled)"))?.focus({ preventScroll: true });
    });
  };
  const key = (event: KeyboardEvent) => {
    const rtl = document.documentElement.dir === "rtl" ? -1 : 1;
    const step = { ArrowLeft: -rtl, ArrowRight: rtl }[event.key];
    if (step === undefined || busy || siblings[at + step] === undefined) return;
    event.preventDefault();
    void turn(step as 1 | -1);
  };
  if (siblings.length < 2) return null;
  return (
    <div ref={group} class="branches" role="group" aria-label={t("versions")} onKeyDown={key}>
      <Action icon="left" label={t("previousVersion")} testid="branch-prev" disabled={at <= 0 || busy} run={() => void turn(-1)} />
      <span class="branch-count">
        {at + 1}/{siblings.length}
      </span>
      <Action icon="right" label={t("nextVersion")} testid="branch-next" disabled={at >= siblings.length - 1 || busy} run={() => void turn(1)} />
    </div>
  );
}

function Editor({ view, thread }: MessageProps) {
  const field = useRef<HTMLTextAreaElement>(null);
  const empty = useSignal(false);
  const close = () => {
    editing.value = null;
    document.querySelector<HTMLElement>("[data-testid=composer]")?.focus({ preventScroll: true });
  };
  const grow = () => {
    const area = field.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, innerHeight * 0.5)}px`;
    empty.value = area.value.trim() === "";
  };
  useLayoutEffect(() => {
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
      <textarea ref={field} rows={1} dir="auto" aria-label={t("editMessage")} onInput={grow} onKeyDown={key} />
      <div class="editor-actions">
        <button type="button" class="button" onClick={close}>
          {t("cancel")}
        </button>
        <button type="button" class="button primary" disabled={empty.value} onClick={() => void send()}>
          {t("send")}
        </button>
      </div>
    </div>
  );
}

export function UserMessage({ view, thread }: MessageProps) {
  const data = view.data.value;
  const split = useComputed(() => splitAttachments(view.text.value));
  return (
    <article class="message user" data-testid="message" data-message-id={data.id} data-status={data.status} data-role="user" aria-label={t("youSaid")}>
      <h2 class="visually-hidden">{t("youSaid")}</h2>
      {editing.value === view.key ? (
        <Editor view={view} thread={thread} />
      ) : (
        <>
          {split.value.attached.map((one, at) => (
            <SentAttachment key={at} one={one} />
          ))}
          {split.value.text !== "" && (
            <div class="bubble" dir="auto">
              {split.value.text}
            </div>
          )}
          <div class="actions">
            <CopyAction text={() => view.text.peek()} />
            <Action icon="pencil" label={t("edit")} testid="edit" disabled={thread.running.value !== null} run={() => (editing.value = view.key)} />
            <Branches view={view} thread={thread} />
          </div>
        </>
      )}
    </article>
  );
}

/** The model's thinking: one live line while it goes on, folded up afterwards, never part of what is copied. */
function Thinking({ view }: { view: MessageView }) {
  const text = view.reasoning.value;
  if (text === "") return null;
  const busy = view.streaming && view.text.value === "";
  const ms = view.thoughtMs.value;
  return (
    <details class="thinking">
      <summary>
        <Icon name="chevron" size={14} />
        {busy ? t("thinking") : ms === null ? t("thoughts") : t("thoughtFor", duration(ms))}
        {busy && (
          <span class="thinking-line" dir="auto">
            {text.slice(-200).split("\n").at(-1)}
          </span>
        )}
      </summary>
      <div class="thinking-text" dir="auto">
        {text}
      </div>
    </details>
  );
}

function Sources({ view }: { view: MessageView }) {
  const items = view.sources.value;
  if (items.length === 0) return null;
  return (
    <section class="sources" aria-label={t("sources")}>
      <h3>{t("sources")}</h3>
      <ol>
        {items.map((item) => (
          <li key={item.url} dir="auto">
            {/^https?:/.test(item.url) ? (
              <a href={item.url} target="_blank" rel="noopener noreferrer">
                {item.title}
              </a>
            ) : (
              item.title
            )}
          </li>
        ))}
      </ol>
    </section>
  );
}

function Regenerate({ view, thread }: MessageProps) {
  const busy = thread.running.value !== null;
  const others = models.value;
  return (
    <>
      <Action icon="refresh" label={t("regenerate")} testid="regenerate" disabled={busy} run={() => void thread.regenerate(view)} />
      {others.length > 1 && !busy && (
        <Menu
          label={t("regenerateWith")}
          className="action slim"
          items={() => others.map((model) => ({ label: model.id, detail: model.model ?? "", icon: "refresh", run: () => void thread.regenerate(view, model.id) }))}
        >
          <Icon name="chevron" size={14} />
        </Menu>
      )}
    </>
  );
}

/** Reads an answer aloud as it is on the screen, where this machine has a voice. */
function aloud(view: MessageView): MenuItem[] {
  if (speaking.value === view.id) return [{ label: t("stopReading"), icon: "speaker", run: hush }];
  if (!canSpeak()) return [];
  const shown = () => document.querySelector<HTMLElement>(`[data-message-id="${CSS.escape(view.id)}"] .prose`)?.innerText;
  return [{ label: t("readAloud"), icon: "speaker", run: () => speak(view.id, shown() ?? view.text.peek()) }];
}

function AnswerActions({ view, thread, ask }: MessageProps & { ask(open: boolean): void }) {
  const data = view.data.value;
  return (
    <div class="actions">
      <CopyAction text={() => view.text.peek()} />
      <Thumbs view={view} ask={ask} />
      {data.status !== "failed" && <Regenerate view={view} thread={thread} />}
      <Info view={view} />
      <Menu
        label={t("moreActions")}
        className="action"
        items={() => [{ label: t("branchOff"), icon: "branch", testid: "branch-off", run: () => void branchOff(thread, view) }, ...aloud(view)]}
      >
        <Icon name="dots" size={16} />
      </Menu>
      <Branches view={view} thread={thread} />
      <span class="facts">{data.model}</span>
    </div>
  );
}

export function AssistantMessage({ view, thread }: MessageProps) {
  const data = view.data.value;
  const streaming = data.status === "streaming";
  const asking = useSignal(false);
  return (
    <article
      class="message assistant"
      data-testid="message"
      data-message-id={data.id}
      data-status={data.status}
      data-role="assistant"
      aria-label={t("assistantSaid")}
      aria-busy={streaming}
      tabIndex={streaming ? undefined : -1}
    >
      <h2 class="visually-hidden">{t("assistantSaid")}</h2>
      <Downgraded view={view} />
      <Thinking view={view} />
      <Markdown text={view.text} live={streaming} />
      <Sources view={view} />
      {streaming ? <Waiting view={view} /> : <Outcome view={view} thread={thread} />}
      {streaming ? <div class="actions" /> : <AnswerActions view={view} thread={thread} ask={(open) => (asking.value = open)} />}
      {asking.value && <Reasons view={view} close={() => (asking.value = false)} />}
    </article>
  );
}
