import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api, Problem } from "../api";
import { t } from "../i18n";
import { endChoosing, me, wantedPassword } from "../state/session";
import { Logo } from "./Icon";

/** Whoever came by a link and could not come back without another one chooses a password before the chat opens. */
export function ChoosePassword() {
  const field = useRef<HTMLInputElement>(null);
  const [busy, fault] = [useSignal(false), useSignal("")];
  useEffect(() => field.current?.focus(), []);
  const wanted = wantedPassword.value;
  if (wanted === null) return null;

  const refuse = (words: string) => {
    fault.value = words;
    field.current?.focus();
  };
  const show = (readable: boolean) => {
    if (field.current) field.current.type = readable ? "text" : "password";
  };
  const save = async () => {
    const password = field.current?.value ?? "";
    if (busy.value) return;
    if (password.length < wanted.least_characters) return refuse(t("passwordShort", wanted.least_characters));
    busy.value = true;
    try {
      await api.setPassword(password, "");
      endChoosing();
    } catch (error) {
      refuse(error instanceof Problem ? error.message : t("changeFailed"));
    } finally {
      busy.value = false;
    }
  };
  return (
    <main class="gate">
      <Logo size={40} />
      <h1>{t("choosePassword")}</h1>
      <p>{t("choosePasswordText")}</p>
      <form
        class="gate-form tall"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <input name="username" type="text" autocomplete="username" dir="auto" readOnly tabIndex={-1} value={me.value?.name ?? ""} aria-label={t("name")} />
        <input
          ref={field}
          name="password"
          type="password"
          autocomplete="new-password"
          autocapitalize="none"
          spellcheck={false}
          maxLength={1024}
          placeholder={t("newPassword")}
          aria-label={t("newPassword")}
          aria-describedby="password-rule"
          aria-invalid={fault.value !== ""}
          onInput={() => (fault.value = "")}
        />
        <p id="password-rule" class="gate-rule">
          {t("passwordRule", wanted.least_characters)}
        </p>
        <label class="gate-check">
          <input type="checkbox" onChange={(event) => show(event.currentTarget.checked)} />
          {t("showPassword")}
        </label>
        {fault.value && (
          <p class="gate-fault" role="alert">
            {fault.value}
          </p>
        )}
        <button type="submit" class="button primary" disabled={busy.value}>
          {t("setPassword")}
        </button>
        {wanted.skippable && (
          <button type="button" class="button" onClick={endChoosing}>
            {t("notNow")}
          </button>
        )}
      </form>
    </main>
  );
}
