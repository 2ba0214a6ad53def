import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, isAbsent, Problem, type Prompt } from "../api";
import { PART_NAMES } from "../components/ContextMeter";
import { Modal } from "../components/Modal";
import { t } from "../i18n";
import { number } from "../i18n/format";
import { closeDialog } from "./open";

/** Every part that the model read for an answer, with its tokens, and what was left out. */
export function PromptParts({ generation }: { generation: string }) {
  const prompt = useSignal<Prompt | null>(null);
  const fault = useSignal("");
  useEffect(() => {
    api.prompt(generation).then(
      (found) => (prompt.value = found),
      (error: unknown) => (fault.value = isAbsent(error) ? t("promptAbsent") : error instanceof Problem ? error.message : t("pageFailed")),
    );
  }, []);
  const found = prompt.value;
  return (
    <Modal title={t("whatWasRead")} kind="wide" close={closeDialog}>
      {fault.value && <p class="fault">{fault.value}</p>}
      {!found && !fault.value && <p>{t("loading")}</p>}
      {found && (
        <>
          <p>
            {t("promptTokens", number(found.prompt_tokens))}
            {found.omitted.length > 0 && ` ${t("omitted", found.omitted.length)}`}
          </p>
          <ol class="parts">
            {found.parts.map((part, at) => (
              <li key={at}>
                <details open={part.kind === "summary"}>
                  <summary>
                    <b>{t(PART_NAMES[part.kind] ?? "partTurn")}</b>
                    <small>
                      {t("tokens", number(part.tokens))}
                      {part.cached ? ` · ${t("cached")}` : ""}
                    </small>
                  </summary>
                  <pre dir="auto" tabIndex={0}>
                    {part.text}
                  </pre>
                </details>
              </li>
            ))}
          </ol>
        </>
      )}
    </Modal>
  );
}
