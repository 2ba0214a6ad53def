import { useSignal } from "@preact/signals";
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
      <h1>Sign in to Antiphon</h1>
      {signInFault.value && (
        <p class="gate-fault" role="status">
          {signInFault.value}
        </p>
      )}
      <p>
        On the machine that runs Antiphon, this command prints a sign-in link:
      </p>
      <pre class="gate-command">
        <code>antiphon link</code>
      </pre>
      <p>Open that link in this browser, or paste it here.</p>
      <form class="gate-form" onSubmit={(event) => void submit(event)}>
        <input name="link" type="text" autocomplete="off" spellcheck={false} placeholder="Sign-in link" aria-label="Sign-in link" />
        <button type="submit" class="button primary" disabled={busy.value}>
          Sign in
        </button>
      </form>
    </main>
  );
}
