import { signal } from "@preact/signals";
import { language } from "../i18n";

/** Reading answers aloud, with voices of this machine alone: others would send the text away. */

/** The message that is being read. */
export const speaking = signal<string | null>(null);

function voice(): SpeechSynthesisVoice | undefined {
  if (!("speechSynthesis" in globalThis)) return undefined;
  const own = speechSynthesis.getVoices().filter((one) => one.localService);
  return own.find((one) => one.lang.startsWith(language.peek())) ?? own[0];
}

export function canSpeak(): boolean {
  return voice() !== undefined;
}

export function hush(): void {
  if (speaking.peek() !== null) speechSynthesis.cancel();
  speaking.value = null;
}

export function speak(message: string, text: string): void {
  hush();
  const chosen = voice();
  if (!chosen) return;
  const spoken = new SpeechSynthesisUtterance(text);
  spoken.voice = chosen;
  spoken.lang = chosen.lang;
  const end = () => speaking.peek() === message && (speaking.value = null);
  spoken.onend = end;
  spoken.onerror = end;
  speaking.value = message;
  speechSynthesis.speak(spoken);
}
