import type { Model } from "../api";
import { Icon } from "../components/Icon";
import { describe, stateOf } from "../components/ModelPicker";
import { LoadingBar } from "../components/LoadingBar";
import { t } from "../i18n";
import { allModels, chooseDefaultModel, defaultModel } from "../state/session";
import { AddServer } from "./AddServer";

/** What a million tokens cost; where nobody has named a price, nothing is said of it. */
function priceOf({ price }: Model): string {
  return price === null ? "" : ` · ${t("priceOf", price.input, price.cached_input, price.output)}`;
}

export function ModelsTab() {
  return (
    <>
      <p class="soft">{t("modelsNote")}</p>
      <ul class="lines">
        {allModels.value.map((model) => {
          const state = stateOf(model);
          const favourite = defaultModel.value === model.id;
          return (
            <li key={model.id}>
              <span class={`state-dot ${state.kind}`} aria-hidden="true" />
              <span class="menu-text">
                <b>{model.id}</b>
                <small>{describe(model)}</small>
                <small>
                  {state.words}
                  {priceOf(model)}
                </small>
                <LoadingBar model={model} />
              </span>
              <button
                type="button"
                class={favourite ? "action star on" : "action star"}
                aria-pressed={favourite}
                disabled={!model.allowed}
                aria-label={t("makeDefault", model.id)}
                title={t("makeDefault", model.id)}
                onClick={() => chooseDefaultModel(favourite ? null : model.id)}
              >
                <Icon name="star" size={16} />
              </button>
            </li>
          );
        })}
      </ul>
      <AddServer />
    </>
  );
}
