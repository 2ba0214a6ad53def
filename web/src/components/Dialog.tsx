import { signal } from "@preact/signals";
import { t, type Key } from "../i18n";
import { Modal } from "./Modal";

interface Question {
  title: string;
  text: string;
  action: string;
  answer(yes: boolean): void;
}

const question = signal<Question | null>(null);
export const helpOpen = signal(false);

/** Asks before something that cannot be undone. */
export function confirmAction(title: string, text: string, action: string): Promise<boolean> {
  return new Promise((resolve) => {
    question.value = { title, text, action, answer: resolve };
  });
}

export function ConfirmDialog() {
  const asked = question.value;
  if (!asked) return null;
  const close = (yes: boolean) => {
    question.value = null;
    asked.answer(yes);
  };
  return (
    <Modal title={asked.title} close={() => close(false)}>
      <p>{asked.text}</p>
      <div class="dialog-actions">
        <button type="button" class="button" autofocus onClick={() => close(false)}>
          {t("cancel")}
        </button>
        <button type="button" class="button danger" onClick={() => close(true)}>
          {asked.action}
        </button>
      </div>
    </Modal>
  );
}

const mac = /Mac|iPhone|iPad/.test(navigator.platform);
const mod = mac ? "⌘" : "Ctrl";

const SHORTCUTS: readonly [Key, string][] = [
  ["newChat", `${mod} Shift O`],
  ["search", `${mod} K`],
  ["goToField", "Shift Esc"],
  ["stopAnswer", "Esc"],
  ["copyLastAnswer", `${mod} Shift C`],
  ["copyLastCode", `${mod} Shift ;`],
  ["toggleSidebar", `${mod} Shift S`],
  ["editLastMessage", "↑"],
  ["switchVersion", "← →"],
  ["theseShortcuts", `${mod} /`],
];

export function HelpDialog() {
  if (!helpOpen.value) return null;
  const close = () => (helpOpen.value = false);
  return (
    <Modal title={t("shortcuts")} close={close}>
      <dl class="keys">
        {SHORTCUTS.map(([what, keys]) => (
          <div key={what}>
            <dt>{t(what)}</dt>
            <dd dir="ltr">
              {keys.split(" ").map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </Modal>
  );
}
