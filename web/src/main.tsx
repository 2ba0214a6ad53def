import { render } from "preact";
import { App } from "./components/App";
import { loadMarkdown } from "./components/Markdown";
import { startSession } from "./state/session";
import { startThreads } from "./state/threads";
import "./styles/base.css";
import "./styles/sidebar.css";
import "./styles/layout.css";
import "./styles/thread.css";
import "./styles/prose.css";

const root = document.getElementById("app");
if (root) {
  startThreads();
  void startSession();
  render(<App />, root);
  void loadMarkdown();
}
