import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";
import { api, type Hit } from "../api";
import { Icon, type IconName } from "../components/Icon";
import { Modal } from "../components/Modal";
import { t } from "../i18n";
import { conversations, titleOf } from "../state/conversations";
import { go, goToMessage } from "../state/router";
import { startNewChat } from "../state/sidebar";
import { closeDialog, openSettings } from "./open";

const TYPING_MS = 140;
const RECENT = 7;

interface Entry {
  key: string;
  icon: IconName;
  title: string;
  /** Pieces of a snippet; every other one is a hit. */
  snippet: readonly string[];
  run(): void;
}

/** Splits `a <mark>b</mark> c` into its pieces and turns the entities back into text; nothing of it becomes markup (a paragraph keeps its spaces). */
export function snippetPieces(html: string): string[] {
  const plain = (text: string) => new DOMParser().parseFromString(`<p>${text}`, "text/html").documentElement.textContent ?? "";
  return html.split(/<\/?mark>/).map(plain);
}

function found(hit: Hit): Entry {
  return {
    key: `${hit.conversation_id} ${hit.message_id ?? ""}`,
    icon: hit.message_id ? "search" : "compose",
    title: hit.title || t("newChat"),
    snippet: hit.message_id ? snippetPieces(hit.snippet) : [],
    run: () => goToMessage(hit.conversation_id, hit.message_id),
  };
}

function standing(): Entry[] {
  const actions: Entry[] = [
    { key: "new", icon: "compose", title: t("newChat"), snippet: [], run: startNewChat },
    { key: "settings", icon: "gear", title: t("settings"), snippet: [], run: () => openSettings() },
  ];
  return [...actions, ...conversations.value.slice(0, RECENT).map((item) => ({ key: item.id, icon: "clock" as const, title: titleOf(item), snippet: [], run: () => go(item.id) }))];
}

/** Finds titles and texts while one types; the arrows choose, Enter opens at the place. */
export function Palette() {
  const field = useRef<HTMLInputElement>(null);
  const query = useSignal("");
  const hits = useSignal<readonly Hit[] | null>(null);
  const failed = useSignal(false);
  const at = useSignal(0);
  const id = useId();
  const entries = useComputed(() => (query.value.trim() === "" ? standing() : (hits.value ?? []).map(found)));

  useEffect(() => field.current?.focus(), []);
  useEffect(() => {
    const wanted = query.value.trim();
    at.value = 0;
    failed.value = false;
    if (wanted === "") return void (hits.value = null);
    let here = true;
    const timer = setTimeout(() => {
      api.search(wanted).then(
        (page) => here && (hits.value = page.data),
        () => here && ((hits.value = []), (failed.value = true)),
      );
    }, TYPING_MS);
    return () => {
      here = false;
      clearTimeout(timer);
    };
  }, [query.value]);

  const choose = (entry: Entry | undefined) => {
    if (!entry) return;
    closeDialog();
    entry.run();
  };
  const key = (event: KeyboardEvent) => {
    if (event.isComposing || event.keyCode === 229) return;
    const count = entries.value.length;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && count > 0) {
      event.preventDefault();
      at.value = (at.value + step + count) % count;
      requestAnimationFrame(() => document.getElementById(`${id}-${at.value}`)?.scrollIntoView({ block: "nearest" }));
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(entries.value[at.value]);
    }
  };

  const list = entries.value;
  return (
    <Modal title={t("search")} kind="palette" plain close={closeDialog}>
      <div class="palette-head">
        <Icon name="search" />
        <input
          ref={field}
          type="text"
          role="combobox"
          dir="auto"
          aria-label={t("search")}
          aria-expanded="true"
          aria-controls={id}
          aria-activedescendant={list.length > 0 ? `${id}-${at.value}` : undefined}
          placeholder={t("searchChats")}
          maxLength={512}
          autocomplete="off"
          spellcheck={false}
          data-testid="search-field"
          onInput={(event) => (query.value = event.currentTarget.value)}
          onKeyDown={key}
        />
        <kbd>Esc</kbd>
      </div>
      <div id={id} class="palette-list" role="listbox" aria-label={t("results")}>
        {list.map((entry, index) => (
          <div
            key={entry.key}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === at.value}
            class={index === at.value ? "palette-row on" : "palette-row"}
            data-testid="search-result"
            onMouseMove={() => (at.value = index)}
            onClick={() => choose(entry)}
          >
            <Icon name={entry.icon} size={16} />
            <span class="menu-text">
              <span class="palette-title" dir="auto">
                {entry.title}
              </span>
              {entry.snippet.length > 0 && (
                <small dir="auto">{entry.snippet.map((piece, number) => (number % 2 === 1 ? <mark key={number}>{piece}</mark> : piece))}</small>
              )}
            </span>
          </div>
        ))}
      </div>
      {query.value.trim() !== "" && hits.value !== null && list.length === 0 && <p class="palette-none">{failed.value ? t("searchFailed") : t("nothingFound")}</p>}
    </Modal>
  );
}
