import { useSignal } from "@preact/signals";
import { api, type PartKind, type Prompt } from "../api";
import { openPrompt } from "../dialogs/open";
import { t } from "../i18n";
import { number, percent } from "../i18n/format";
import { models } from "../state/session";
import type { Thread } from "../state/thread";
import { Popover } from "./Popover";

/** Below this share of the window nobody needs to know. */
const SHOWN_FROM = 0.7;

/** How full the model's window is after the newest answer; null where that is not known. */
export function contextShare(thread: Thread): { share: number; used: number; window: number } | null {
  const data = thread.views.value.findLast((view) => view.data.value.role === "assistant" && !view.streaming)?.data.value;
  const window = models.value.find((model) => model.id === data?.model || model.model === data?.model)?.context_tokens;
  if (!data || data.prompt_tokens === null || !window) return null;
  const used = data.prompt_tokens + (data.output_tokens ?? 0);
  return { share: Math.min(1, used / window), used, window };
}

export const PART_NAMES = { system: "partSystem", instructions: "partInstructions", memory: "partMemory", turn: "partTurn", summary: "partSummary", snippet: "partSnippet" } as const satisfies Record<PartKind, string>;

/** A small ring that fills up; it appears only when the conversation nears the model's window. */
export function ContextMeter({ thread }: { thread: Thread }) {
  const prompt = useSignal<Prompt | null>(null);
  const found = contextShare(thread);
  const generation = thread.views.value.findLast((view) => view.data.value.role === "assistant")?.data.value.generation_id;
  if (!found || found.share < SHOWN_FROM) return null;
  const read = async () => {
    prompt.value = null;
    if (!generation) return;
    prompt.value = await api.prompt(generation).catch(() => null);
  };
  const around = 2 * Math.PI * 8;
  const byKind = new Map<PartKind, number>();
  for (const part of prompt.value?.parts ?? []) byKind.set(part.kind, (byKind.get(part.kind) ?? 0) + part.tokens);
  return (
    <Popover
      label={t("contextUsed", percent(found.share))}
      className="ghost meter"
      testid="context-meter"
      side="above"
      opened={() => void read()}
      button={
        <svg width="22" height="22" viewBox="0 0 22 22" aria-hidden="true" focusable="false">
          <circle cx="11" cy="11" r="8" class="meter-back" />
          <circle cx="11" cy="11" r="8" class={found.share > 0.9 ? "meter-front full" : "meter-front"} stroke-dasharray={`${around * found.share} ${around}`} transform="rotate(-90 11 11)" />
        </svg>
      }
    >
      <b>{t("contextTitle")}</b>
      <p>{t("contextOf", number(found.used), number(found.window))}</p>
      {byKind.size > 0 && (
        <dl class="facts-list">
          {[...byKind].map(([kind, tokens]) => (
            <div key={kind}>
              <dt>{t(PART_NAMES[kind])}</dt>
              <dd>{number(tokens)}</dd>
            </div>
          ))}
          <div>
            <dt>{t("contextFree")}</dt>
            <dd>{number(Math.max(0, found.window - found.used))}</dd>
          </div>
        </dl>
      )}
      <p class="soft">{t("contextNote")}</p>
      {prompt.value && generation && (
        <button type="button" class="link" onClick={() => openPrompt(generation)}>
          {t("whatWasRead")}
        </button>
      )}
    </Popover>
  );
}
