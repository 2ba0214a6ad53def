import { effect } from "@preact/signals";
import { render } from "preact";
import { App } from "./components/App";
import { loadMarkdown } from "./components/Markdown";
import { startPage } from "./components/page";
import { startLanguage } from "./i18n";
import { sharedToken } from "./state/router";
import { session, startSession } from "./state/session";
import { startSettings } from "./state/settings";
import { startThreads } from "./state/threads";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/dialog.css";
import "./styles/settings.css";
import "./styles/sidebar.css";
import "./styles/layout.css";
import "./styles/thread.css";
import "./styles/composer.css";
import "./styles/prose.css";
import "./styles/narrow.css";

async function start(root: HTMLElement): Promise<void> {
  startSettings();
  const language = startLanguage();
  const shared = sharedToken();
  if (shared !== null) {
    const [{ SharedChat }] = await Promise.all([import("./shared/SharedChat"), language]);
    render(<SharedChat token={shared} />, root);
    document.getElementById("shell")?.remove();
    void loadMarkdown();
    return;
  }
  startThreads();
  startPage();
  void startSession();
  await language;
  render(<App />, root);
  effect(() => {
    if (session.value !== "starting") document.getElementById("shell")?.remove();
  });
  void loadMarkdown();
}

/** What the page brought along is painted first; a page that is not on the screen paints nothing. */
function painted(): Promise<void> {
  if (document.hidden) return Promise.resolve();
  return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 0)));
}

const root = document.getElementById("app");
if (root) void painted().then(() => start(root));
