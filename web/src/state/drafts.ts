/** Unsent text per conversation, kept in this browser until the send is accepted. */

const PREFIX = "antiphon.draft.";

export function readDraft(id: string | null): string {
  try {
    return localStorage.getItem(PREFIX + (id ?? "new")) ?? "";
  } catch {
    return "";
  }
}

/** Takes an accepted message out of the draft; what was typed after it stays, under the conversation's id. */
export function settleDraft(from: string | null, id: string, sent: string): void {
  const draft = readDraft(from);
  if (!draft.startsWith(sent)) return;
  writeDraft(from, "");
  writeDraft(id, draft.slice(sent.length).replace(/^\n/, ""));
}

/** Forgets all drafts of this browser. */
export function forgetDrafts(): void {
  for (const key of Object.keys(localStorage)) if (key.startsWith(PREFIX)) localStorage.removeItem(key);
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
