import { useSignal } from "@preact/signals";
import { t } from "../i18n";
import { enter, signInFault, usePassword, useToken } from "../state/session";
import { Logo } from "./Icon";

/** Takes the token out of a pasted link; a bare token is taken as it is. */
function tokenOf(text: string): string {
  const trimmed = text.trim();
  try {
    return new URL(trimmed).searchParams.get("token") ?? trimmed;
  } catch {
    return trimmed;
  }
}

function valueOf(event: SubmitEvent, name: string): string {
  return ((event.currentTarget as HTMLFormElement).elements.namedItem(name) as HTMLInputElement).value;
}

export function SignedOut() {
  const busy = useSignal(false);
  const signIn = async (event: SubmitEvent, prove: () => Promise<boolean> | null) => {
    event.preventDefault();
    const proof = busy.value ? null : prove();
    if (proof === null) return;
    busy.value = true;
    if (await proof) await enter();
    busy.value = false;
  };
  const withPassword = (event: SubmitEvent) => {
    const [name, password] = [valueOf(event, "username").trim(), valueOf(event, "password")];
    return name === "" || password === "" ? null : usePassword(name, password);
  };
  const withLink = (event: SubmitEvent) => {
    const token = tokenOf(valueOf(event, "link"));
    return token === "" ? null : useToken(token);
  };
  return (
    <main class="gate">
      <Logo size={40} />
      <h1>{t("signInTitle")}</h1>
      {signInFault.value && (
        <p class="gate-fault" role="status">
          {signInFault.value}
        </p>
      )}
      <form class="gate-form tall" onSubmit={(event) => void signIn(event, () => withPassword(event))}>
        <input name="username" type="text" autocomplete="username" autocapitalize="none" spellcheck={false} dir="auto" placeholder={t("name")} aria-label={t("name")} />
        <input name="password" type="password" autocomplete="current-password" placeholder={t("password")} aria-label={t("password")} />
        <button type="submit" class="button primary" disabled={busy.value}>
          {t("signIn")}
        </button>
      </form>
      <p class="gate-or">{t("or")}</p>
      <form class="gate-form" onSubmit={(event) => void signIn(event, () => withLink(event))}>
        <input name="link" type="text" autocomplete="off" spellcheck={false} placeholder={t("signInLink")} aria-label={t("signInLink")} />
        <button type="submit" class="button" disabled={busy.value}>
          {t("useLink")}
        </button>
      </form>
      <p>{t("signInCommand")}</p>
      <pre class="gate-command">
        <code>antiphon link</code>
      </pre>
    </main>
  );
}
