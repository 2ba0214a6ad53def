import { signal, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { isAbsent, Problem, read, write } from "../api";
import { Icon } from "../components/Icon";
import { t } from "../i18n";
import { showToast } from "../state/toast";

interface Memory {
  id: string;
  text: string;
}

const INSTRUCTIONS = "/v1/me/instructions";
const MEMORY = "/v1/me/memory";

const instructions = signal<string | null>(null);
const memories = signal<readonly Memory[]>([]);

/** What the person tells every chat about themselves; `present` is false where the server does not keep it. */
export const personal = {
  present: signal(false),
  async read(): Promise<void> {
    try {
      const [told, kept] = await Promise.all([read<{ text: string }>(INSTRUCTIONS), read<{ data: Memory[] }>(MEMORY)]);
      instructions.value = told.text;
      memories.value = kept.data;
      personal.present.value = true;
    } catch (error) {
      if (isAbsent(error)) personal.present.value = false;
    }
  },
};

/** Changes something there and says how that went. */
async function change(run: () => Promise<unknown>, done: string | null): Promise<boolean> {
  try {
    await run();
    if (done) showToast(done);
    return true;
  } catch (error) {
    showToast(error instanceof Problem ? error.message : t("changeFailed"));
    return false;
  }
}

function Instructions() {
  const field = useRef<HTMLTextAreaElement>(null);
  const changed = useSignal(false);
  const save = async () => {
    const text = field.current?.value ?? "";
    if (await change(() => write("PUT", INSTRUCTIONS, { text }), t("saved"))) {
      instructions.value = text;
      changed.value = false;
    }
  };
  return (
    <section>
      <h3>{t("instructions")}</h3>
      <p class="soft">{t("instructionsNote")}</p>
      <textarea
        ref={field}
        class="field area"
        rows={5}
        dir="auto"
        aria-label={t("instructions")}
        defaultValue={instructions.value ?? ""}
        onInput={() => (changed.value = true)}
      />
      <div class="dialog-actions tight">
        <button type="button" class="button primary" disabled={!changed.value} onClick={() => void save()}>
          {t("save")}
        </button>
      </div>
    </section>
  );
}

function MemoryLine({ memory }: { memory: Memory }) {
  const save = (text: string) => {
    if (text.trim() === "" || text.trim() === memory.text) return;
    void change(() => write("PATCH", `${MEMORY}/${encodeURIComponent(memory.id)}`, { text }), t("saved")).then(personal.read);
  };
  return (
    <li>
      <input class="field" defaultValue={memory.text} dir="auto" aria-label={t("memory")} onChange={(event) => save(event.currentTarget.value)} />
      <button
        type="button"
        class="action"
        aria-label={t("forgetThis", memory.text)}
        title={t("forget")}
        onClick={() => void change(() => write("DELETE", `${MEMORY}/${encodeURIComponent(memory.id)}`, {}), null).then(personal.read)}
      >
        <Icon name="trash" size={16} />
      </button>
    </li>
  );
}

export function PersonalTab() {
  const field = useRef<HTMLInputElement>(null);
  if (instructions.value === null) return <p>{t("loading")}</p>;
  const add = async () => {
    const text = field.current?.value.trim();
    if (!text) return;
    if (await change(() => write("POST", MEMORY, { text }), null)) {
      if (field.current) field.current.value = "";
      await personal.read();
    }
  };
  return (
    <>
      <Instructions />
      <section>
        <h3>{t("memory")}</h3>
        <p class="soft">{t("memoryNote")}</p>
        <ul class="lines compact">
          {memories.value.map((memory) => (
            <MemoryLine key={memory.id} memory={memory} />
          ))}
        </ul>
        <form
          class="copy-line"
          onSubmit={(event) => {
            event.preventDefault();
            void add();
          }}
        >
          <input ref={field} class="field" dir="auto" placeholder={t("memoryExample")} aria-label={t("remember")} />
          <button type="submit" class="button">
            {t("remember")}
          </button>
        </form>
      </section>
    </>
  );
}
