import { randomId } from "../ids";

/** A long text that travels inside a message and is shown as a chip. */
export interface Attachment {
  key: string;
  name: string;
  text: string;
}

/** Longer pastes become attachments. */
const PASTE_CHARACTERS = 8000;
const PASTE_LINES = 200;
/** What the server takes as one message. */
export const MESSAGE_BYTES = 256_000;

const FENCE = /(?:^|\n\n)(`{4,})text ([^\n`]{1,100})\n([\s\S]*?)\n\1(?=\n\n|$)/g;

export function isLong(text: string): boolean {
  return text.length > PASTE_CHARACTERS || lineCount(text) > PASTE_LINES;
}

export function lineCount(text: string): number {
  let lines = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines += 1;
  return lines;
}

export function makeAttachment(name: string, text: string): Attachment {
  return { key: randomId(), name: name.replace(/[\n`]/g, " ").slice(0, 100) || "text", text: text.replace(/\r\n?/g, "\n") };
}

/** The message as it is sent: each attachment in a fence that its text cannot close. */
export function withAttachments(text: string, attached: readonly Attachment[]): string {
  const parts = attached.map(({ name, text: body }) => {
    const longest = Math.max(3, ...Array.from(body.matchAll(/`+/g), (run) => run[0].length));
    const fence = "`".repeat(longest + 1);
    return `${fence}text ${name}\n${body}\n${fence}`;
  });
  return [text.trim() === "" && parts.length > 0 ? "" : text, ...parts].filter((part) => part !== "").join("\n\n");
}

/** The inverse of `withAttachments`. */
export function splitAttachments(content: string): { text: string; attached: Attachment[] } {
  if (!content.includes("````")) return { text: content, attached: [] };
  const attached: Attachment[] = [];
  const text = content.replace(FENCE, (_all, _fence, name: string, body: string) => {
    attached.push(makeAttachment(name, body));
    return "";
  });
  return { text, attached };
}

export function byteLength(text: string): number {
  return text.length * 3 < MESSAGE_BYTES ? text.length : new TextEncoder().encode(text).length;
}
