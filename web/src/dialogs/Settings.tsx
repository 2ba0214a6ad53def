import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Icon, type IconName } from "../components/Icon";
import { Modal } from "../components/Modal";
import { t, type Key } from "../i18n";
import { usage } from "../state/usage";
import { AccountTab } from "./AccountTab";
import { DataTab } from "./DataTab";
import { GeneralTab } from "./GeneralTab";
import { ModelsTab } from "./ModelsTab";
import { closeDialog, type Tab } from "./open";
import { personal, PersonalTab } from "./PersonalTab";
import { UsageTab } from "./UsageTab";

interface TabEntry {
  tab: Tab;
  words: Key;
  icon: IconName;
  view: ComponentType;
}

const TABS: readonly TabEntry[] = [
  { tab: "general", words: "tabGeneral", icon: "gear", view: GeneralTab },
  { tab: "personal", words: "tabPersonal", icon: "pencil", view: PersonalTab },
  { tab: "models", words: "tabModels", icon: "sparkle", view: ModelsTab },
  { tab: "data", words: "tabData", icon: "file", view: DataTab },
  { tab: "usage", words: "tabUsage", icon: "gauge", view: UsageTab },
  { tab: "account", words: "tabAccount", icon: "key", view: AccountTab },
];

/** Every setting in one dialog; each takes effect at once. What the server does not have is not shown. */
export function Settings({ tab }: { tab: Tab }) {
  const shown = useSignal<Tab>(tab);
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    void usage.read();
    void personal.read();
  }, []);
  const tabs = TABS.filter((entry) => (entry.tab !== "usage" || usage.present.value) && (entry.tab !== "personal" || personal.present.value));
  const current = tabs.find((entry) => entry.tab === shown.value) ?? tabs[0];
  if (!current) return null;
  const View = current.view;
  const move = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = tabs[(tabs.indexOf(current) + step + tabs.length) % tabs.length];
    if (!next) return;
    shown.value = next.tab;
    requestAnimationFrame(() => list.current?.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
  };
  return (
    <Modal title={t("settings")} kind="settings" close={closeDialog}>
      <div class="settings-body">
        <div ref={list} class="tabs" role="tablist" aria-label={t("settings")} aria-orientation="vertical" onKeyDown={move}>
          {tabs.map((entry) => (
            <button
              key={entry.tab}
              type="button"
              role="tab"
              id={`tab-${entry.tab}`}
              aria-selected={entry === current}
              aria-controls="tab-panel"
              tabIndex={entry === current ? 0 : -1}
              class={entry === current ? "tab on" : "tab"}
              onClick={() => (shown.value = entry.tab)}
            >
              <Icon name={entry.icon} size={16} />
              {t(entry.words)}
            </button>
          ))}
        </div>
        <div id="tab-panel" class="tab-panel" role="tabpanel" aria-labelledby={`tab-${current.tab}`} tabIndex={0}>
          <View key={current.tab} />
        </div>
      </div>
    </Modal>
  );
}
