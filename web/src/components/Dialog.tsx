import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

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
  const box = useRef<HTMLDialogElement>(null);
  const asked = question.value;
  useEffect(() => {
    if (asked && !box.current?.open) box.current?.showModal();
  }, [asked]);
  if (!asked) return null;
  const close = (yes: boolean) => {
    question.value = null;
    asked.answer(yes);
  };
  return (
    <dialog ref={box} class="dialog" aria-labelledby="confirm-title" onCancel={() => close(false)} onClick={(event) => event.target === box.current && close(false)}>
      <div class="dialog-body">
        <h2 id="confirm-title">{asked.title}</h2>
        <p>{asked.text}</p>
        <div class="dialog-actions">
          <button type="button" class="button" onClick={() => close(false)}>
            Cancel
          </button>
          <button type="button" class="button danger" autofocus onClick={() => close(true)}>
            {asked.action}
          </button>
        </div>
      </div>
    </dialog>
  );
}

const mac = /Mac|iPhone|iPad/.test(navigator.platform);
const mod = mac ? "⌘" : "Ctrl";

const SHORTCUTS: readonly [string, string][] = [
  ["New chat", `${mod} Shift O`],
  ["Go to the message field", "Shift Esc"],
  ["Stop the answer", "Esc"],
  ["Copy the last answer", `${mod} Shift C`],
  ["Show or hide the sidebar", `${mod} Shift S`],
  ["Edit the last message (empty field)", "↑"],
  ["These shortcuts", `${mod} /`],
];

export function HelpDialog() {
  const box = useRef<HTMLDialogElement>(null);
  const open = helpOpen.value;
  useEffect(() => {
    if (open && !box.current?.open) box.current?.showModal();
  }, [open]);
  if (!open) return null;
  const close = () => (helpOpen.value = false);
  return (
    <dialog ref={box} class="dialog" aria-labelledby="help-title" onCancel={close} onClick={(event) => event.target === box.current && close()}>
      <div class="dialog-body">
        <h2 id="help-title">Keyboard shortcuts</h2>
        <dl class="keys">
          {SHORTCUTS.map(([what, keys]) => (
            <div key={what}>
              <dt>{what}</dt>
              <dd>
                {keys.split(" ").map((key) => (
                  <kbd key={key}>{key}</kbd>
                ))}
              </dd>
            </div>
          ))}
        </dl>
        <div class="dialog-actions">
          <button type="button" class="button" autofocus onClick={close}>
            Close
          </button>
        </div>
      </div>
    </dialog>
  );
}
