import { t } from "../i18n";
import { allModels, models } from "../state/session";
import { startNewChat } from "../state/sidebar";
import type { Thread } from "../state/thread";
import { Icon, Logo } from "./Icon";
import { LoadingBar } from "./LoadingBar";

function fill(text: string): void {
  const field = document.querySelector<HTMLTextAreaElement>("[data-testid=composer]");
  if (!field) return;
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.focus();
}

/** Until a model is ready: which one loads, or how to get one. */
function FirstRun() {
  const loading = models.value.filter((model) => model.status === "loading");
  if (models.value.some((model) => model.status === "ready") || allModels.value.length === 0) return null;
  return (
    <section class="first-run" data-testid="first-run" aria-label={t("models")}>
      {loading.map((model) => (
        <div key={model.id} class="loading-model">
          <b>{t("loadingModel", model.id)}</b>
          <LoadingBar model={model} />
          <small>{t("loadingNote")}</small>
        </div>
      ))}
      {loading.length === 0 && (
        <>
          <b>{t("noModel")}</b>
          <p>{t("noModelHow")}</p>
          <pre class="gate-command">
            <code>antiphon models pull</code>
          </pre>
        </>
      )}
    </section>
  );
}

export function Welcome({ thread }: { thread: Thread }) {
  const starters = [t("starter1"), t("starter2"), t("starter3")];
  return (
    <div class="welcome column">
      {thread.temporary.value ? <Icon name="ghost" size={40} /> : <Logo size={40} />}
      <h1>{thread.temporary.value ? t("temporaryChat") : t("greeting")}</h1>
      {thread.temporary.value && <p>{t("temporaryText")}</p>}
      <FirstRun />
      {!thread.temporary.value && (
        <div class="starters">
          {starters.map((text) => (
            <button key={text} type="button" class="starter" onClick={() => fill(text)}>
              {text}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

export function Missing({ thread }: { thread: Thread }) {
  const missing = thread.state.value === "missing";
  return (
    <div class="welcome column">
      <h1>{missing ? t("chatMissing") : t("chatUnreadable")}</h1>
      <p>{missing ? t("chatMissingText") : t("unreachable")}</p>
      <button type="button" class="button primary" onClick={missing ? startNewChat : () => void thread.load()}>
        {missing ? t("startNewChat") : t("tryAgain")}
      </button>
    </div>
  );
}
