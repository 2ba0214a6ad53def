import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { copyText } from "../clipboard";
import { currentTitle } from "../state/conversations";
import { route } from "../state/router";
import { chooseModel, chosenModel, models, session } from "../state/session";
import type { Thread } from "../state/thread";
import { current } from "../state/threads";
import { Composer } from "./Composer";
import { ConfirmDialog, HelpDialog, helpOpen } from "./Dialog";
import { Icon, Logo } from "./Icon";
import { Menu } from "./Menu";
import { waitText } from "./Message";
import { Sidebar, sidebarShown, startNewChat, toggleSidebar } from "./Sidebar";
import { SignedOut } from "./SignedOut";
import { ThreadPane } from "./ThreadPane";

function ModelPicker() {
  const list = models.value;
  if (list.length === 0) return <span />;
  const shown = list.find((model) => model.id === chosenModel.value) ?? list[0];
  const detail = (status: string, load: string) =>
    status === "loading" ? "Loading" : status === "down" ? "Not running" : load === "full" ? "Very busy" : load === "high" ? "Busy" : "Ready";
  if (list.length === 1) return <span class="model-name">{shown?.id}</span>;
  return (
    <Menu
      label={`Model: ${shown?.id ?? ""}`}
      className="model-picker"
      items={list.map((model) => ({
        label: model.id,
        detail: detail(model.status, model.load),
        checked: model.id === shown?.id,
        run: () => chooseModel(model.id),
      }))}
    >
      {shown?.id}
      <Icon name="chevron" size={16} />
    </Menu>
  );
}

function Header() {
  return (
    <header class="topbar">
      <button type="button" class={sidebarShown.value ? "ghost only-narrow" : "ghost"} aria-label="Show sidebar" aria-controls="sidebar" onClick={toggleSidebar}>
        <Icon name="sidebar" size={20} />
      </button>
      <ModelPicker />
      <button type="button" class={sidebarShown.value ? "ghost only-narrow end" : "ghost end"} aria-label="New chat" onClick={startNewChat}>
        <Icon name="compose" size={20} />
      </button>
    </header>
  );
}

const STARTERS = ["How does a rainbow form?", "Write a polite reminder", "Plan a quiet weekend"];

function Welcome() {
  const fill = (text: string) => {
    const field = document.querySelector<HTMLTextAreaElement>("[data-testid=composer]");
    if (!field) return;
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.focus();
  };
  return (
    <div class="welcome column">
      <Logo size={40} />
      <h1>What is on your mind?</h1>
      <div class="starters">
        {STARTERS.map((text) => (
          <button key={text} type="button" class="starter" onClick={() => fill(text)}>
            {text}
          </button>
        ))}
      </div>
    </div>
  );
}

function Missing({ thread }: { thread: Thread }) {
  const missing = thread.state.value === "missing";
  return (
    <div class="welcome column">
      <h1>{missing ? "This chat does not exist" : "This chat could not be opened"}</h1>
      <p>{missing ? "It may have been deleted, or it belongs to somebody else." : "Antiphon cannot be reached at the moment."}</p>
      <button type="button" class="button primary" onClick={missing ? startNewChat : () => void thread.load()}>
        {missing ? "Start a new chat" : "Try again"}
      </button>
    </div>
  );
}

/** Says the state of the newest answer to screen readers, and nothing of its text. */
function Announcer({ thread }: { thread: Thread }) {
  const said = useSignal("");
  const last = thread.views.value.at(-1);
  const status = last?.data.value.status;
  const wait = last?.streaming ? waitText(last.wait.value) : null;
  useEffect(() => {
    if (status === "streaming") said.value = wait?.startsWith("Queued") ? wait : "Answering";
    else if (said.value !== "") said.value = status === "complete" ? "Answer ready" : status === "cancelled" ? "Stopped" : "The answer failed";
  }, [status, wait]);
  return (
    <div class="visually-hidden" role="status" aria-live="polite">
      {said.value}
    </div>
  );
}

function Main() {
  const thread = current.value;
  const state = thread.state.value;
  const empty = thread.views.value.length === 0;
  const broken = state === "missing" || state === "failed";
  return (
    <main class={empty && state === "ready" && !broken ? "main fresh" : "main"} id="main">
      <Header />
      {broken ? <Missing thread={thread} /> : empty ? state === "ready" && <Welcome /> : <ThreadPane key={threadKey(thread)} thread={thread} />}
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

function shortcuts(event: KeyboardEvent): void {
  if (event.isComposing || event.defaultPrevented) return;
  const mod = event.metaKey || event.ctrlKey;
  const composer = document.querySelector<HTMLTextAreaElement>("[data-testid=composer]");
  if (event.key === "Escape" && !document.querySelector("dialog[open], :popover-open")) {
    if (event.shiftKey) composer?.focus();
    else if (current.value.running.value) current.value.stop();
    else return;
    event.preventDefault();
  } else if (mod && event.shiftKey && !event.altKey) {
    const run = { KeyO: startNewChat, KeyS: toggleSidebar, KeyC: copyLast }[event.code];
    if (!run) return;
    event.preventDefault();
    run();
  } else if (mod && event.key === "/") {
    event.preventDefault();
    helpOpen.value = true;
  }
}

function copyLast(): void {
  const last = current.value.views.value.findLast((view) => view.data.value.role === "assistant");
  if (last) void copyText(last.text.value);
}

export function App() {
  const title = route.value === null ? null : currentTitle.value;
  const running = session.value === "in" && current.value.running.value !== null;
  useEffect(() => {
    document.title = `${running ? "… " : ""}${title ? `${title} · Antiphon` : "Antiphon"}`;
  }, [title, running]);
  useEffect(() => {
    addEventListener("keydown", shortcuts);
    return () => removeEventListener("keydown", shortcuts);
  }, []);
  if (session.value === "starting") return null;
  if (session.value === "out") return <SignedOut />;
  if (session.value === "unreachable") {
    return (
      <main class="gate">
        <Logo size={40} />
        <h1>Connecting</h1>
        <p role="status">Antiphon does not answer yet. This page goes on as soon as it does.</p>
      </main>
    );
  }
  return (
    <div class="layout">
      <a class="skip" href="#main">
        Skip to the chat
      </a>
      <Sidebar />
      <Main />
      <ConfirmDialog />
      <HelpDialog />
    </div>
  );
}
