import { useSignal } from "@preact/signals";
import { api, type Generation } from "../api";
import { openPrompt } from "../dialogs/open";
import { t } from "../i18n";
import { measured, moment, number } from "../i18n/format";
import type { MessageView } from "../state/message";
import { Icon } from "./Icon";
import { closePopover, Popover } from "./Popover";

interface Fact {
  name: string;
  value: string;
}

/** A rate from counts that the server measured; nothing where they say nothing. */
function rate(tokens: number | null, ms: number | undefined): string | null {
  return tokens && ms ? t("tokensPerSecond", number(tokens / (ms / 1000))) : null;
}

function factsOf(view: MessageView, generation: Generation | null): Fact[] {
  const data = view.data.value;
  const usage = generation?.usage;
  const times = view.times.value;
  const ttft = times?.ttft_ms ?? (usage ? usage.queued_ms + usage.prefill_ms : null);
  const queued = times?.queued_ms ?? usage?.queued_ms;
  const facts: [string, string | null | undefined][] = [
    [t("model"), data.model],
    [t("askedFor"), data.requested_model !== data.model ? data.requested_model : null],
    [t("tokensIn"), data.prompt_tokens === null ? null : number(data.prompt_tokens)],
    [t("tokensCached"), data.cached_tokens === null ? null : number(data.cached_tokens)],
    [t("tokensOut"), data.output_tokens === null ? null : number(data.output_tokens)],
    [t("waited"), queued ? measured(queued) : null],
    [t("firstToken"), ttft === null ? null : measured(ttft)],
    [t("speed"), rate(data.output_tokens, usage?.decode_ms)],
    [t("cost"), data.output_tokens === null ? null : (data.cost ?? usage?.cost ?? "—")],
    [t("time"), moment(data.created_at)],
  ];
  return facts.flatMap(([name, value]) => (value ? [{ name, value }] : []));
}

/** What an answer cost and how it was made. */
export function Info({ view }: { view: MessageView }) {
  const generation = useSignal<Generation | null>(null);
  const id = view.data.value.generation_id;
  const read = async () => {
    if (id && generation.value === null) generation.value = await api.generation(id).catch(() => null);
  };
  return (
    <Popover label={t("info")} className="action" testid="info" side="above" button={<Icon name="info" size={16} />} opened={() => void read()}>
      <dl class="facts-list" data-testid="info-panel">
        {factsOf(view, generation.value).map(({ name, value }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd dir="auto">{value}</dd>
          </div>
        ))}
      </dl>
      {id && (
        <>
          <code class="id">{id}</code>
          <button
            type="button"
            class="link"
            onClick={(event) => {
              closePopover(event.currentTarget);
              openPrompt(id);
            }}
          >
            {t("whatWasRead")}
          </button>
        </>
      )}
    </Popover>
  );
}
