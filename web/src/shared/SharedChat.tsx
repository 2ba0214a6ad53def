import { computed, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { api, Problem, type SharedConversation } from "../api";
import { CopyAction } from "../components/Action";
import { SentAttachment } from "../components/Attachments";
import { Logo } from "../components/Icon";
import { Markdown } from "../components/Markdown";
import { NoPage } from "../components/NoPage";
import { t } from "../i18n";
import { day } from "../i18n/format";
import { splitAttachments } from "../state/attachments";
import "../styles/shared.css";

type Told = SharedConversation["data"][number];

function Question({ told }: { told: Told }) {
  const { text, attached } = useMemo(() => splitAttachments(told.content), [told]);
  return (
    <article class="message user" aria-label={t("youSaid")}>
      {attached.map((one, at) => (
        <SentAttachment key={at} one={one} />
      ))}
      {text !== "" && (
        <div class="bubble" dir="auto">
          {text}
        </div>
      )}
    </article>
  );
}

function Answer({ told }: { told: Told }) {
  const text = useMemo(() => computed(() => told.content), [told]);
  return (
    <article class="message assistant" data-role="assistant" aria-label={t("assistantSaid")}>
      <Markdown text={text} live={false} />
      <div class="actions">
        <CopyAction text={() => told.content} />
        <span class="facts">{told.model}</span>
      </div>
    </article>
  );
}

/** Fetches a shared chat until there is an answer; `null` where the link leads nowhere. */
async function fetchShared(token: string): Promise<SharedConversation | null> {
  for (let delay = 1000; ; delay = Math.min(delay * 2, 15_000)) {
    try {
      return await api.shared(token);
    } catch (error) {
      if (error instanceof Problem && error.status === 404) return null;
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }
}

/** What is behind a share link, for anybody who has it. */
export function SharedChat({ token }: { token: string }) {
  const found = useSignal<SharedConversation | null | undefined>(undefined);
  const pane = useRef<HTMLDivElement>(null);
  useEffect(() => void fetchShared(token).then((shared) => (found.value = shared)), []);
  const shared = found.value;
  useEffect(() => pane.current?.focus(), [shared]);
  if (shared === undefined) return null;
  if (shared === null) return <NoPage />;
  return (
    <div ref={pane} class="pane" tabIndex={-1}>
      <header class="topbar shared-bar">
        <Logo size={22} /> <b>{t("sharedChat")}</b>
        <a class="button small topbar-end" href="/">
          {t("ownChat")}
        </a>
      </header>
      <main class="column thread shared-chat" id="main">
        <h1 class="shared-title" dir="auto">
          {shared.title || t("sharedChat")}
        </h1>
        <p class="soft">{t("sharedWhen", day(shared.created_at))}</p>
        {shared.data.map((told, at) => (told.role === "user" ? <Question key={at} told={told} /> : <Answer key={at} told={told} />))}
      </main>
    </div>
  );
}
