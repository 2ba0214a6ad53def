import assert from "node:assert/strict";
import { test } from "vitest";
import { de } from "../src/i18n/de";
import { en } from "../src/i18n/en";
import { pseudo } from "../src/i18n/pseudo";

const KEYS = Object.keys(en) as (keyof typeof en)[];
/** Words that are the same in both languages. */
const SAME = new Set(["chats", "code", "exportOwn", "exportMarkdown", "exportJson", "name", "link", "exportChats", "importChats", "user"]);

function told(words: Record<string, unknown>, key: string): string {
  const text = words[key];
  return typeof text === "function" ? (text as (...given: unknown[]) => string)(...["1", "2", "3"]) : String(text);
}

test("every text is there in both languages, and translated", () => {
  assert.deepEqual(Object.keys(de).sort(), [...KEYS].sort());
  const untranslated = KEYS.filter((key) => told(en, key) === told(de, key) && !SAME.has(key));
  assert.deepEqual(untranslated, []);
});

test("a text takes the same values in both languages", () => {
  for (const key of KEYS) {
    assert.equal(typeof en[key], typeof de[key], key);
    if (typeof en[key] === "function") for (const value of ["1", "2", "3"]) assert.equal(told(en, key).includes(value), told(de, key).includes(value), `${key} tells ${value}`);
  }
});

test("the tests' own language marks every text", () => {
  const marked = pseudo(en);
  for (const key of KEYS) assert.match(told(marked, key), /^⟦.*⟧$/s, key);
});
