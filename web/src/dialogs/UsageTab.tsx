import { useEffect } from "preact/hooks";
import type { Limit } from "../api";
import { t } from "../i18n";
import { moment, number, percent } from "../i18n/format";
import { limitName, shareOf, usage, usedOf } from "../state/usage";

function Budget({ limit }: { limit: Limit }) {
  const share = shareOf(limit);
  return (
    <div class="budget">
      <div class="budget-head">
        <span>{limitName(limit)}</span>
        <span class="soft">{usedOf(limit)}</span>
      </div>
      <progress value={share} max={1} aria-label={limitName(limit)} data-full={share > 0.9 ? "" : undefined}>
        {percent(share)}
      </progress>
      {limit.resets_at && share > 0 && <small class="soft">{t("resetsAt", moment(limit.resets_at))}</small>}
    </div>
  );
}

export function UsageTab() {
  useEffect(() => void usage.read(), []);
  const shown = usage.found.value;
  if (usage.failed.value) return <p class="fault">{t("unreachable")}</p>;
  if (!shown) return <p>{t("loading")}</p>;
  return (
    <>
      <p>{t("yourPlan", shown.plan)}</p>
      {shown.limits.map((limit) => (
        <Budget key={`${limit.name} ${limit.model ?? ""}`} limit={limit} />
      ))}
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
