import { useSignal, useSignalEffect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { closeDialog, opened } from "../dialogs/open";
import { t } from "../i18n";
import { currentTitle } from "../state/conversations";
import { online } from "../state/network";
import { place, route } from "../state/router";
import { session } from "../state/session";
import type { Thread } from "../state/thread";
import { current } from "../state/threads";
import { announced } from "../state/toast";
import { finishedHidden, shortcuts } from "./page";
import { ChoosePassword } from "./ChoosePassword";
import { Composer } from "./Composer";
import { ConfirmDialog, HelpDialog } from "./Dialog";
import { Header } from "./Header";
import { Icon, Logo } from "./Icon";
import { Lazy } from "./Lazy";
import { NoPage } from "./NoPage";
import { waitText } from "./Outcome";
import { Sidebar } from "./Sidebar";
import { SignedOut } from "./SignedOut";
import { ThreadPane } from "./ThreadPane";
import { Toast } from "./Toast";
import { Missing, Welcome } from "./Welcome";

/** The one live region: tells screen readers the newest answer's state, and short notices; never the text. */
function Announcer({ thread }: { thread: Thread }) {
  const said = useSignal("");
  const last = thread.views.value.at(-1);
  const status = last?.data.value.status;
  const wait = last?.streaming ? waitText(last.wait.value) : null;
  useEffect(() => {
    if (status === "streaming") said.value = wait ?? t("answering");
    else if (said.value !== "") said.value = status === "complete" ? t("answerReady") : status === "cancelled" ? t("stopped") : status === undefined ? "" : t("answerFailed");
  }, [status, wait]);
  useSignalEffect(() => {
    if (announced.value !== "") said.value = announced.value;
  });
  return (
    <div class="visually-hidden" role="status" aria-live="polite">
      {said.value}
    </div>
  );
}

function Offline() {
  if (online.value) return null;
  return (
    <p class="offline" data-testid="offline">
      <Icon name="cloudOff" size={16} />
      {t("offlineBanner")}
    </p>
  );
}

function Chat() {
  const thread = current.value;
  const state = thread.state.value;
  const empty = thread.views.value.length === 0;
  const broken = state === "missing" || state === "failed";
  return (
    <main class={empty && state === "ready" && !broken ? "main fresh" : "main"} id="main" data-thread={threadKey(thread)}>
      <Header thread={thread} />
      <Offline />
      {broken ? <Missing thread={thread} /> : empty ? state === "ready" && <Welcome thread={thread} /> : <ThreadPane key={threadKey(thread)} thread={thread} />}
      {!broken && <Composer key={`composer ${threadKey(thread)}`} thread={thread} />}
      <Announcer key={`announcer ${threadKey(thread)}`} thread={thread} />
    </main>
  );
}

const keys = new WeakMap<Thread, string>();
let made = 0;

function threadKey(thread: Thread): string {
  let key = keys.get(thread);
  if (key === undefined) {
    made += 1;
    key = String(made);
    keys.set(thread, key);
  }
  return key;
}

/** The dialog that is open, if any; its code comes when it is first asked for. */
function Dialogs() {
  const open = opened.value;
  if (!open) return null;
  const common = { failed: closeDialog };
  switch (open.kind) {
    case "palette":
      return <Lazy key="palette" load={async () => (await import("../dialogs/Palette")).Palette} props={{}} {...common} />;
    case "settings":
      return <Lazy key="settings" load={async () => (await import("../dialogs/Settings")).Settings} props={{ tab: open.tab }} {...common} />;
    case "share":
      return <Lazy key={`share ${open.id}`} load={async () => (await import("../dialogs/Share")).Share} props={{ id: open.id }} {...common} />;
    case "move":
      return <Lazy key={`move ${open.id}`} load={async () => (await import("../dialogs/Move")).Move} props={{ id: open.id }} {...common} />;
    case "prompt":
      return <Lazy key={`prompt ${open.generation}`} load={async () => (await import("../dialogs/PromptParts")).PromptParts} props={{ generation: open.generation }} {...common} />;
  }
}

function useTitle(): void {
  const title = place.value === "operator" ? t("operator") : route.value === null ? null : currentTitle.value;
  const running = session.value === "in" && current.value.running.value !== null;
  const mark = finishedHidden.value ? "● " : running ? "… " : "";
  useEffect(() => {
    document.title = `${mark}${title ? `${title} · Antiphon` : "Antiphon"}`;
  }, [title, mark]);
}

export function App() {
  useTitle();
  useEffect(() => {
    addEventListener("keydown", shortcuts);
    return () => removeEventListener("keydown", shortcuts);
  }, []);
  if (place.value === "missing") return <NoPage />;
  if (session.value === "starting") return null;
  if (session.value === "out") return <SignedOut />;
  if (session.value === "choosing") return <ChoosePassword />;
  if (session.value === "unreachable") {
    return (
      <main class="gate">
        <Logo size={40} />
        <h1>{t("connecting")}</h1>
        <p role="status">{t("connectingText")}</p>
      </main>
    );
  }
  return (
    <div class="layout">
      <a class="skip" href="#main">
        {t("skipToChat")}
      </a>
      <Sidebar />
      {place.value === "operator" ? (
        <Lazy key="operator" load={async () => (await import("../operator/Operator")).Operator} props={{}} failed={() => history.back()} />
      ) : (
        <Chat />
      )}
      <Toast />
      <ConfirmDialog />
      <HelpDialog />
      <Dialogs />
      <div class="drop-zone" aria-hidden="true">
        {t("dropHere")}
      </div>
    </div>
  );
}
