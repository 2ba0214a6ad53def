import { signal, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { isAbsent, Problem, read, write } from "../api";
import { t } from "../i18n";
import { showToast } from "../state/toast";
import { Switch } from "./Line";

interface Personal {
  instructions: string;
  memory: { id: string; text: string }[];
  enabled: boolean;
}

const ADDRESS = "/v1/me/personal";
const found = signal<Personal | null>(null);

/** What the person tells every chat about themselves; `present` is false where the server does not keep it. */
export const personal = {
  present: signal(false),
  async read(): Promise<void> {
    try {
      found.value = await read<Personal>(ADDRESS);
      personal.present.value = true;
    } catch (error) {
      if (isAbsent(error)) personal.present.value = false;
    }
  },
};

async function change(patch: Partial<Personal>): Promise<void> {
  try {
    found.value = await write<Personal>("PATCH", ADDRESS, patch);
    showToast(t("saved"));
  } catch (error) {
    showToast(error instanceof Problem ? error.message : t("changeFailed"));
  }
}

export function PersonalTab() {
  const field = useRef<HTMLTextAreaElement>(null);
  const changed = useSignal(false);
  const shown = found.value;
  if (!shown) return <p>{t("loading")}</p>;
  return (
    <>
      <Switch name={t("usePersonal")} note={t("usePersonalNote")} on={shown.enabled} turn={(enabled) => void change({ enabled })} />
      <h3>{t("instructions")}</h3>
      <p class="soft">{t("instructionsNote")}</p>
      <textarea ref={field} class="field area" rows={6} dir="auto" aria-label={t("instructions")} defaultValue={shown.instructions} onInput={() => (changed.value = true)} />
      <div class="dialog-actions">
        <button
          type="button"
          class="button primary"
          disabled={!changed.value}
          onClick={() => {
            changed.value = false;
            void change({ instructions: field.current?.value ?? "" });
          }}
        >
          {t("save")}
        </button>
      </div>
    </>
  );
}
