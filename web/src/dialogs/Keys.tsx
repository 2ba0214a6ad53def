import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api, Problem, type ApiKey } from "../api";
import { copyText } from "../clipboard";
import { Icon } from "../components/Icon";
import { t } from "../i18n";
import { day } from "../i18n/format";
import { showToast } from "../state/toast";

/** The account's keys: made, shown once, revoked. */
export function Keys() {
  const keys = useSignal<readonly ApiKey[]>([]);
  const made = useSignal<string | null>(null);
  const name = useRef<HTMLInputElement>(null);
  const tell = (error: unknown) => showToast(error instanceof Problem ? error.message : t("changeFailed"));
  const read = async () => {
    keys.value = (await api.keys()).data.filter((key) => key.revoked_at === null);
  };
  useEffect(() => void read().catch(() => undefined), []);
  const create = async () => {
    const wanted = name.current?.value.trim();
    if (!wanted) return name.current?.focus();
    try {
      made.value = (await api.createKey(wanted)).key;
      if (name.current) name.current.value = "";
      await read();
    } catch (error) {
      tell(error);
    }
  };
  return (
    <section>
      <h3>{t("keys")}</h3>
      <p class="soft">{t("keysNote")}</p>
      {made.value && (
        <div class="copy-line">
          <input class="field" readOnly value={made.value} aria-label={t("newKey")} dir="ltr" />
          <button type="button" class="button primary" onClick={() => void copyText(made.value ?? "").then((done) => showToast(done ? t("copied") : t("copyRefused")))}>
            {t("copy")}
          </button>
        </div>
      )}
      {made.value && <p class="soft">{t("keyOnce")}</p>}
      <ul class="lines compact">
        {keys.value.map((key) => (
          <li key={key.id}>
            <Icon name="key" size={16} />
            <span class="menu-text">
              <span class="own" dir="auto">{key.name}</span>
              <small class="own">
                …{key.last4} · {key.scopes.join(", ")} · {day(key.created_at)}
              </small>
            </span>
            <button type="button" class="button small" onClick={() => void api.revokeKey(key.id).then(read, tell)}>
              {t("revoke")}
            </button>
          </li>
        ))}
      </ul>
      <form
        class="copy-line"
        onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}
      >
        <input ref={name} class="field" maxLength={200} dir="auto" placeholder={t("keyName")} aria-label={t("keyName")} />
        <button type="submit" class="button">
          {t("createKey")}
        </button>
      </form>
    </section>
  );
}
