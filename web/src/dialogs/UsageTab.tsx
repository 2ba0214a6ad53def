import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, isAbsent, type Usage } from "../api";
import { t } from "../i18n";
import { moment, number, percent } from "../i18n/format";

const found = signal<Usage | null>(null);
const failed = signal(false);

/** The account's limits and use; `present` is false where the server does not count. */
export const usage = {
  present: signal(false),
  found,
  async read(): Promise<void> {
    try {
      found.value = await api.usage();
      usage.present.value = true;
      failed.value = false;
    } catch (error) {
      if (isAbsent(error)) usage.present.value = false;
      else failed.value = true;
    }
  },
};

/** A limit's name in words; one that we do not know stays as it is. */
function nameOf(name: string, model: string | null | undefined): string {
  const known = {
    tokens_per_minute: t("limitTokensMinute"),
    requests_per_minute: t("limitRequestsMinute"),
    messages: t("limitMessages"),
    concurrency: t("limitConcurrency"),
    budget: t("limitBudget"),
  };
  const levels = { key: t("ofKey"), tenant: t("ofOrganisation") };
  const [, level, own] = /^(key|tenant)_(.+)$/.exec(name) ?? [undefined, undefined, name];
  const words = known[own as keyof typeof known] ?? own?.replace(/_/g, " ");
  return [words, model, level && levels[level as keyof typeof levels]].filter(Boolean).join(" · ");
}

function amount(value: number | string): string {
  return typeof value === "number" ? number(value) : value;
}

export function UsageTab() {
  useEffect(() => void usage.read(), []);
  const shown = found.value;
  if (failed.value) return <p class="fault">{t("unreachable")}</p>;
  if (!shown) return <p>{t("loading")}</p>;
  return (
    <>
      <p>{t("yourPlan", shown.plan)}</p>
      {shown.limits.map((limit) => {
        const share = Number(limit.limit) > 0 ? Math.min(1, Number(limit.used) / Number(limit.limit)) : 0;
        return (
          <div key={`${limit.name} ${limit.model ?? ""}`} class="budget">
            <div class="budget-head">
              <span>{nameOf(limit.name, limit.model)}</span>
              <span class="soft">{t("usedOf", amount(limit.used), amount(limit.limit))}</span>
            </div>
            <progress value={share} max={1} aria-label={nameOf(limit.name, limit.model)} data-full={share > 0.9 ? "" : undefined}>
              {percent(share)}
            </progress>
            {limit.resets_at && <small class="soft">{t("resetsAt", moment(limit.resets_at))}</small>}
          </div>
        );
      })}
      <dl class="facts-list wide">
        {(["today", "month"] as const).map((span) => {
          const total = shown[span];
          return total ? (
            <div key={span}>
              <dt>{span === "today" ? t("usageToday") : t("usageMonth")}</dt>
              <dd>
                {t("messageCount", total.messages)} · {t("tokens", number(total.tokens))} · {t("cost")} {total.cost ?? "—"}
              </dd>
            </div>
          ) : null;
        })}
      </dl>
    </>
  );
}
