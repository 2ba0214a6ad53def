import { useSignal } from "@preact/signals";
import { t } from "../i18n";
import { enter, signInFault, useToken } from "../state/session";
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

export function SignedOut() {
  const busy = useSignal(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const field = (event.currentTarget as HTMLFormElement).elements.namedItem("link") as HTMLInputElement;
    const token = tokenOf(field.value);
    if (token === "" || busy.value) return;
    busy.value = true;
    if (await useToken(token)) await enter();
    busy.value = false;
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
      <p>
        {t("signInCommand")}
      </p>
      <pre class="gate-command">
        <code>antiphon link</code>
      </pre>
      <p>{t("signInPaste")}</p>
      <form class="gate-form" onSubmit={(event) => void submit(event)}>
        <input name="link" type="text" autocomplete="off" spellcheck={false} placeholder={t("signInLink")} aria-label={t("signInLink")} />
        <button type="submit" class="button primary" disabled={busy.value}>
          {t("signIn")}
        </button>
      </form>
    </main>
  );
}
