import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api, Problem, type ApiKey } from "../api";
import { copyText } from "../clipboard";
import { Icon } from "../components/Icon";
import { t, type Key } from "../i18n";
import { day } from "../i18n/format";
import { me, signOut } from "../state/session";
import { showToast } from "../state/toast";
import { Line } from "./Line";

const ROLES: Record<string, Key> = { owner: "roleOwner", admin: "roleAdmin", member: "roleMember" };

function Keys() {
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
              <span dir="auto">{key.name}</span>
              <small>
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

/** Ending an account cannot be undone: its name has to be typed. */
function EndAccount() {
  const asking = useSignal(false);
  const typed = useSignal("");
  const user = me.value;
  if (!user) return null;
  if (!asking.value) {
    return (
      <Line name={t("endAccount")} note={t("endAccountNote")}>
        <button type="button" class="button danger" onClick={() => (asking.value = true)}>
          {t("endAccount")}
        </button>
      </Line>
    );
  }
  const end = async () => {
    try {
      await api.endAccount();
      await signOut();
    } catch (error) {
      showToast(error instanceof Problem ? error.message : t("changeFailed"));
    }
  };
  return (
    <form
      class="end-account"
      onSubmit={(event) => {
        event.preventDefault();
        if (typed.value === user.name) void end();
      }}
    >
      <p>{t("typeName", user.name)}</p>
      <input class="field" aria-label={t("typeName", user.name)} autocomplete="off" onInput={(event) => (typed.value = event.currentTarget.value)} />
      <div class="dialog-actions">
        <button type="button" class="button" onClick={() => (asking.value = false)}>
          {t("cancel")}
        </button>
        <button type="submit" class="button danger" disabled={typed.value !== user.name}>
          {t("endAccount")}
        </button>
      </div>
    </form>
  );
}

export function AccountTab() {
  const user = me.value;
  if (!user) return null;
  return (
    <>
      <Line name={t("name")}>
        <span class="own" dir="auto">{user.name}</span>
      </Line>
      <Line name={t("role")}>
        <span>{t(ROLES[user.role] ?? "roleMember")}</span>
      </Line>
      <Line name={t("plan")}>
        <span class="own">{user.plan}</span>
      </Line>
      <Keys />
      <Line name={t("accountExport")} note={t("accountExportNote")}>
        <a class="button" href="/v1/me/export" download>
          <Icon name="download" size={16} />
          {t("download")}
        </a>
      </Line>
      <Line name={t("signOut")}>
        <button type="button" class="button" onClick={() => void signOut()}>
          {t("signOut")}
        </button>
      </Line>
      <EndAccount />
    </>
  );
}
