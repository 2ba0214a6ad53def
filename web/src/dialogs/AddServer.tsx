import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Problem, read, write } from "../api";
import { t } from "../i18n";
import { number } from "../i18n/format";
import { me, refreshModels } from "../state/session";
import { showToast } from "../state/toast";

interface Pool {
  name: string;
  added: boolean;
}

interface Offer {
  model: string;
  context_tokens: number;
}

const POOLS = "/v1/admin/pools";

/** Models of servers that people already have: asked for, chosen from, added, removed. For those who run this server. */
export function AddServer() {
  const added = useSignal<readonly string[]>([]);
  const offers = useSignal<readonly Offer[] | null>(null);
  const chosen = useSignal("");
  const fault = useSignal("");
  const busy = useSignal(false);
  const url = useRef<HTMLInputElement>(null);
  const key = useRef<HTMLInputElement>(null);
  const name = useRef<HTMLInputElement>(null);
  const reread = async () => {
    added.value = (await read<Pool[]>(POOLS)).filter((pool) => pool.added).map((pool) => pool.name);
  };
  useEffect(() => void reread().catch(() => undefined), []);
  if (me.value?.role !== "owner" && me.value?.role !== "admin") return null;

  const server = () => ({ url: url.current?.value.trim() ?? "", key: key.current?.value.trim() ?? "" });
  const during = async (work: () => Promise<void>) => {
    busy.value = true;
    fault.value = "";
    try {
      await work();
    } catch (error) {
      fault.value = error instanceof Problem ? error.message : t("changeFailed");
    }
    busy.value = false;
  };
  const ask = () =>
    during(async () => {
      offers.value = (await write<{ data: Offer[] }>("POST", `${POOLS}/offers`, server())).data;
      chosen.value = offers.value[0]?.model ?? "";
      if (offers.value.length === 0) fault.value = t("serverOffersNothing");
    });
  const add = () =>
    during(async () => {
      const made = await write<{ name: string }>("POST", POOLS, { ...server(), model: chosen.value, name: name.current?.value.trim() ?? "" });
      offers.value = null;
      for (const field of [url.current, key.current, name.current]) if (field) field.value = "";
      showToast(t("serverAdded", made.name));
      await Promise.all([reread(), refreshModels()]);
    });
  const remove = (pool: string) =>
    during(async () => {
      await write("DELETE", `${POOLS}/${encodeURIComponent(pool)}`, {});
      await Promise.all([reread(), refreshModels()]);
    });

  return (
    <section data-testid="add-server">
      <h3>{t("otherServers")}</h3>
      <p class="soft">{t("otherServersNote")}</p>
      {added.value.length > 0 && (
        <ul class="lines compact">
          {added.value.map((pool) => (
            <li key={pool}>
              <span class="menu-text own">{pool}</span>
              <button type="button" class="button small" disabled={busy.value} aria-label={t("removeModel", pool)} onClick={() => void remove(pool)}>
                {t("remove")}
              </button>
            </li>
          ))}
        </ul>
      )}
      <form
        class="stacked"
        onSubmit={(event) => {
          event.preventDefault();
          void (offers.value?.length ? add() : ask());
        }}
      >
        <input ref={url} class="field" type="url" required dir="ltr" placeholder={t("serverAddress")} aria-label={t("serverAddress")} onInput={() => (offers.value = null)} />
        <input ref={key} class="field" type="password" autoComplete="off" dir="ltr" placeholder={t("serverKey")} aria-label={t("serverKey")} onInput={() => (offers.value = null)} />
        {offers.value && offers.value.length > 0 && (
          <>
            <select class="field" aria-label={t("serverModel")} value={chosen.value} onChange={(event) => (chosen.value = event.currentTarget.value)}>
              {offers.value.map((offer) => (
                <option key={offer.model} value={offer.model}>
                  {offer.context_tokens > 0 ? `${offer.model} · ${t("contextTokens", number(offer.context_tokens))}` : offer.model}
                </option>
              ))}
            </select>
            <input ref={name} class="field" dir="ltr" maxLength={64} placeholder={t("serverName")} aria-label={t("serverName")} />
          </>
        )}
        {fault.value && (
          <p class="fault" role="alert">
            {fault.value}
          </p>
        )}
        <button type="submit" class={offers.value?.length ? "button primary" : "button"} disabled={busy.value}>
          {busy.value ? t("serverAsked") : offers.value?.length ? t("addModel") : t("askServer")}
        </button>
      </form>
    </section>
  );
}
