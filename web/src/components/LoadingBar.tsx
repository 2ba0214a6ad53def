import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Model } from "../api";
import { t } from "../i18n";
import { duration } from "../i18n/format";

const TICK_MS = 500;

/** How long a model has been loading, and of how long it took the last time, where that is known and not over yet. */
export function LoadingBar({ model: { id, loading } }: { model: Model }) {
  const since = useSignal(0);
  useEffect(() => {
    if (loading === null) return undefined;
    const began = performance.now();
    since.value = 0;
    const timer = setInterval(() => (since.value = performance.now() - began), TICK_MS);
    return () => clearInterval(timer);
  }, [loading]);
  if (loading === null) return null;
  const elapsed = loading.elapsed_ms + since.value;
  const usual = loading.usual_ms !== null && elapsed < loading.usual_ms ? loading.usual_ms : null;
  return (
    <div class="loading-bar">
      {usual === null ? <progress key="unknown" aria-label={t("loadingModel", id)} /> : <progress key="share" aria-label={t("loadingModel", id)} value={elapsed / usual} max={1} />}
      <small>{usual === null ? t("loadingSince", duration(elapsed)) : t("loadingOf", duration(elapsed), duration(usual))}</small>
    </div>
  );
}
