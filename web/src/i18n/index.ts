import { effect, signal } from "@preact/signals";
import { settings } from "../state/settings";
import { en } from "./en";

export type Words = typeof en;
export type Key = keyof Words;
type Arguments<K extends Key> = Words[K] extends (...given: infer A) => string ? A : [];

const words = signal<Words>(en);

/** The language that the page speaks now, as a BCP 47 tag. */
export const language = signal("en");

/** The text for `key`; a component that calls it is drawn again when the language changes. */
export function t<K extends Key>(key: K, ...given: Arguments<K>): string {
  const text = words.value[key] as string | ((...all: unknown[]) => string);
  return typeof text === "string" ? text : text(...given);
}

function wanted(): string {
  const chosen = settings.value.language;
  if (chosen !== "system") return chosen;
  return (navigator.languages ?? [navigator.language]).map((tag) => tag.slice(0, 2)).find((tag) => tag === "en" || tag === "de") ?? "en";
}

async function load(tag: string): Promise<Words> {
  if (tag === "de") return (await import("./de")).de;
  if (tag === "qps") return (await import("./pseudo")).pseudo(en);
  return en;
}

async function speak(tag: string): Promise<void> {
  const found = await load(tag).catch(() => en);
  if (tag !== wanted()) return;
  words.value = found;
  language.value = found === en ? "en" : tag;
  document.documentElement.lang = tag === "qps" ? "en-XA" : language.value;
  document.documentElement.dir = tag === "qps" ? "rtl" : "ltr";
}

/** Loads the chosen language before the first paint and follows later choices. */
export async function startLanguage(): Promise<void> {
  await speak(wanted());
  effect(() => {
    const tag = wanted();
    if (tag !== language.peek()) void speak(tag);
  });
}
