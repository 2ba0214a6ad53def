import type { Words } from "./index";

const ACCENTS: Record<string, string> = { a: "á", e: "é", i: "í", o: "ó", u: "ú", A: "Á", E: "É", I: "Í", O: "Ó", U: "Ú", n: "ñ", c: "ç", y: "ý" };

/** A language for tests: every text is marked with brackets, longer by a third, and still readable. What is not marked was not translated. */
export function pseudo(words: Words): Words {
  const mark = (text: string) => `⟦${text.replace(/[aeiounycAEIOU]/g, (letter) => ACCENTS[letter] ?? letter)}${"·".repeat(Math.ceil(text.length / 3))}⟧`;
  const result: Record<string, unknown> = {};
  for (const [key, text] of Object.entries(words)) {
    // What is put into a text is no text of ours: it stays as it is, between the brackets.
    result[key] = typeof text === "string" ? mark(text) : (...given: unknown[]) => `⟦${(text as (...all: unknown[]) => string)(...given)}⟧`;
  }
  return result as Words;
}
