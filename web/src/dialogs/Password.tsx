import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api, Problem } from "../api";
import { t } from "../i18n";
import { me } from "../state/session";
import { showToast } from "../state/toast";
import { Line } from "./Line";

const SHORTEST = 8;

/** Sets or changes the account's password; the server wants the current one where there is one. */
function Form({ close }: { close(): void }) {
  const current = useRef<HTMLInputElement>(null);
  const wanted = useRef<HTMLInputElement>(null);
  const fault = useSignal("");
  useEffect(() => current.current?.focus(), []);
  const save = async () => {
    const [before, after] = [current.current?.value ?? "", wanted.current?.value ?? ""];
    if (after.length < SHORTEST) {
      fault.value = t("passwordShort", SHORTEST);
      return wanted.current?.focus();
    }
    try {
      await api.setPassword(after, before);
    } catch (error) {
      const wrongBefore = error instanceof Problem && JSON.stringify(error.body["errors"] ?? "").includes("current_password");
      fault.value = wrongBefore ? t("currentPasswordWrong") : error instanceof Problem ? error.message : t("changeFailed");
      return current.current?.focus();
    }
    showToast(t("passwordSet"));
    close();
  };
  return (
    <form
      class="password"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <input hidden type="text" autocomplete="username" value={me.value?.name ?? ""} readOnly />
      <label>
        {t("currentPassword")}
        <small>{t("currentPasswordNote")}</small>
        <input ref={current} class="field" type="password" autocomplete="current-password" maxLength={1024} />
      </label>
      <label>
        {t("newPassword")}
        <input ref={wanted} class="field" type="password" autocomplete="new-password" maxLength={1024} />
      </label>
      {fault.value && (
        <p class="fault" role="alert">
          {fault.value}
        </p>
      )}
      <div class="dialog-actions">
        <button type="button" class="button" onClick={close}>
          {t("cancel")}
        </button>
        <button type="submit" class="button primary">
          {t("save")}
        </button>
      </div>
    </form>
  );
}

export function Password() {
  const open = useSignal(false);
  if (open.value) return <Form close={() => (open.value = false)} />;
  return (
    <Line name={t("password")} note={t("passwordNote")}>
      <button type="button" class="button" onClick={() => (open.value = true)}>
        {t("changePassword")}
      </button>
    </Line>
  );
}
