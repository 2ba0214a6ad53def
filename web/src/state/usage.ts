import { signal } from "@preact/signals";
import { api, isAbsent, type Limit, type Usage } from "../api";
import { t } from "../i18n";
import { number } from "../i18n/format";

const found = signal<Usage | null>(null);
const failed = signal(false);

/** The account's limits and use; `present` is false where the server does not count. */
export const usage = {
  present: signal(false),
  found,
  failed,
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

/** How much of a limit is used, 0 to 1. */
export function shareOf(limit: Limit): number {
  return Number(limit.limit) > 0 ? Math.min(1, Number(limit.used) / Number(limit.limit)) : 0;
}

/** The limit that is nearest to its end. */
export function fullest(limits: readonly Limit[]): Limit | undefined {
  return limits.reduce<Limit | undefined>((most, one) => (most === undefined || shareOf(one) > shareOf(most) ? one : most), undefined);
}

/** A limit's name in words; one that we do not know stays as it is. */
export function limitName({ name, model }: Limit): string {
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

export function usedOf({ used, limit }: Limit): string {
  return t("usedOf", amount(used), amount(limit));
}
