/** Unsent text per conversation, kept in this browser until the send is accepted. */

const PREFIX = "antiphon.draft.";

export function readDraft(id: string | null): string {
  try {
    return localStorage.getItem(PREFIX + (id ?? "new")) ?? "";
  } catch {
    return "";
  }
}

export function writeDraft(id: string | null, text: string): void {
  const key = PREFIX + (id ?? "new");
  try {
    if (text === "") localStorage.removeItem(key);
    else localStorage.setItem(key, text);
  } catch {
    // A full or forbidden storage costs the draft, never the typing.
  }
}
