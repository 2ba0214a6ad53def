import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, type Provider } from "../api";
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

/** Buttons that leave for the providers that whoever runs the server has named; nothing where there are none. */
function Providers() {
  const providers = useSignal<Provider[]>([]);
  useEffect(() => {
    api.providers().then(
      (found) => (providers.value = found.data),
      () => {},
    );
  }, []);
  if (providers.value.length === 0) return null;
  return (
    <>
      <p class="gate-or">{t("or")}</p>
      {providers.value.map(({ name, label }) => (
        <a key={name} class="button gate-provider" href={`/v1/session/providers/${encodeURIComponent(name)}`}>
          {t("signInWith", label)}
        </a>
      ))}
    </>
  );
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
      <Providers />
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
