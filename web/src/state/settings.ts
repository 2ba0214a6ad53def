import { effect, signal } from "@preact/signals";

/** What a person has chosen in this browser. */
export interface Settings {
  theme: "system" | "light" | "dark";
  contrast: "system" | "more";
  /** `qps` is the pseudo-locale of the tests: marked, right to left. */
  language: "system" | "en" | "de" | "qps";
  /** Which key sends: Enter, or Ctrl/⌘ with Enter. */
  send: "enter" | "mod";
  /** The line under the message field. */
  hint: boolean;
  /** An answer that ends while the page is hidden is told by a notification. */
  notify: boolean;
  /** Long lines of code are broken. */
  wrap: boolean;
}

const KEY = "antiphon.settings";
const DEFAULTS: Settings = { theme: "system", contrast: "system", language: "system", send: "enter", hint: true, notify: false, wrap: false };

function read(): Settings {
  try {
    return { ...DEFAULTS, ...(JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<Settings>) };
  } catch {
    return { ...DEFAULTS };
  }
}

export const settings = signal<Settings>(read());

export function changeSettings(change: Partial<Settings>): void {
  settings.value = { ...settings.value, ...change };
  try {
    localStorage.setItem(KEY, JSON.stringify(settings.value));
  } catch {
    // A full or forbidden storage: the choice holds for this page.
  }
}

/** Keeps the page's look in step with the settings, also with those made in another tab. */
export function startSettings(): void {
  effect(() => {
    const { theme, contrast, wrap } = settings.value;
    const root = document.documentElement;
    if (theme === "system") delete root.dataset["theme"];
    else root.dataset["theme"] = theme;
    if (contrast === "system") delete root.dataset["contrast"];
    else root.dataset["contrast"] = contrast;
    root.dataset["wrap"] = wrap ? "on" : "off";
  });
  addEventListener("storage", (event) => {
    if (event.key === KEY) settings.value = read();
  });
}
