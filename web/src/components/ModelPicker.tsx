import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import type { Model } from "../api";
import { t } from "../i18n";
import { duration, number } from "../i18n/format";
import { allModels, chooseDefaultModel, chooseModel, chosenModel, defaultModel, models, refreshModels } from "../state/session";
import { Icon } from "./Icon";
import { closePopover, Popover } from "./Popover";

const SEARCH_FROM = 8;

/** Ready, loading, busy or not running, in a few words. */
export function stateOf(model: Model): { words: string; kind: "ready" | "busy" | "full" | "loading" | "down" | "away" } {
  const wait = model.wait_ms ? ` · ${t("about", duration(model.wait_ms))}` : "";
  if (model.status === "loading") return { words: t("modelStateLoading") + wait, kind: "loading" };
  if (model.status === "down") return { words: t("modelStateDown"), kind: "down" };
  if (model.loaded === false) return { words: t("modelStateAway") + wait, kind: "away" };
  if (model.load === "full") return { words: t("modelStateFull") + wait, kind: "full" };
  if (model.load === "high") return { words: t("modelStateBusy") + wait, kind: "busy" };
  return { words: t("modelStateReady"), kind: "ready" };
}

export function describe(model: Model): string {
  const parts = [model.model && model.model !== model.id ? model.model : "", model.context_tokens ? t("contextTokens", number(model.context_tokens)) : "", model.allowed ? "" : t("notInPlan")];
  return parts.filter(Boolean).join(" · ");
}

function Choice({ model, chosen }: { model: Model; chosen: boolean }) {
  const state = stateOf(model);
  const favourite = defaultModel.value === model.id;
  return (
    <div class="model-choice" role="none">
      <button
        type="button"
        role="menuitemradio"
        aria-checked={chosen}
        class="menu-item"
        disabled={!model.allowed}
        onClick={(event) => {
          chooseModel(model.id);
          closePopover(event.currentTarget);
        }}
      >
        <span class={`state-dot ${state.kind}`} aria-hidden="true" />
        <span class="menu-text">
          {model.id}
          <small>{describe(model)}</small>
          <small class={`state-words ${state.kind}`}>{state.words}</small>
        </span>
        {chosen && <Icon name="check" size={16} />}
      </button>
      <button type="button" class={favourite ? "action star on" : "action star"} role="menuitemcheckbox" aria-checked={favourite} aria-label={t("makeDefault", model.id)} title={t("makeDefault", model.id)} onClick={() => chooseDefaultModel(favourite ? null : model.id)}>
        <Icon name="star" size={16} />
      </button>
    </div>
  );
}

export function ModelPicker() {
  const query = useSignal("");
  const list = useRef<HTMLDivElement>(null);
  const all = allModels.value;
  const shown = models.value.find((model) => model.id === chosenModel.value) ?? models.value[0];
  if (!shown) return <span />;
  if (all.length === 1) {
    const state = stateOf(shown);
    return (
      <span class="model-name">
        {shown.id}
        {state.kind !== "ready" && <small class={`state-words ${state.kind}`}>{state.words}</small>}
      </span>
    );
  }
  const wanted = query.value.trim().toLowerCase();
  const found = all.filter((model) => `${model.id} ${model.model ?? ""}`.toLowerCase().includes(wanted));
  const move = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const items = [...(list.current?.querySelectorAll<HTMLElement>("[role=menuitemradio]:not(:disabled)") ?? [])];
    items[(items.indexOf(document.activeElement as HTMLElement) + step + items.length) % items.length]?.focus();
  };
  return (
    <Popover
      label={t("modelNamed", shown.id)}
      className="model-picker"
      panelClass="models"
      focus="input, [aria-checked=true]"
      opened={() => {
        query.value = "";
        void refreshModels();
      }}
      button={
        <>
          {shown.id}
          {stateOf(shown).kind !== "ready" && <span class={`state-dot ${stateOf(shown).kind}`} aria-hidden="true" />}
          <Icon name="chevron" size={16} />
        </>
      }
    >
      <div ref={list} onKeyDown={move}>
        {all.length >= SEARCH_FROM && <input class="field" type="search" placeholder={t("searchModels")} aria-label={t("searchModels")} onInput={(event) => (query.value = event.currentTarget.value)} />}
        <div role="menu" aria-label={t("models")}>
          {found.map((model) => (
            <Choice key={model.id} model={model} chosen={model.id === shown.id} />
          ))}
        </div>
        {found.length === 0 && <p class="soft">{t("nothingFound")}</p>}
      </div>
    </Popover>
  );
}
