import { api, type Message } from "../api";
import { randomId } from "../ids";
import { t } from "../i18n";
import { headOf, refreshConversations } from "./conversations";
import type { MessageView } from "./message";
import { go } from "./router";
import type { Thread } from "./thread";
import { showToast } from "./toast";

/** Every message from the first down to `leaf`, page by page. */
async function wholePath(conversation: string, leaf: string): Promise<Message[]> {
  let path = await api.path(conversation, { leaf });
  const messages = [...path.data];
  while (path.next !== null) {
    path = await api.path(conversation, { leaf, before: path.next });
    messages.unshift(...path.data);
  }
  return messages;
}

/**
 * Begins a new conversation with everything up to and including a message. The server copies nothing by itself, but it takes
 * conversations in: the path goes there as an export with ids of its own.
 */
export async function branchOff(thread: Thread, view: MessageView): Promise<void> {
  const id = thread.id.value;
  if (id === null) return;
  try {
    const messages = await wholePath(id, view.id);
    const renamed = new Map(messages.map((message) => [message.id, `msg_${randomId()}`]));
    const now = new Date().toISOString();
    const title = headOf(id)?.title ?? "";
    const copy = {
      id: `conv_${randomId()}`,
      title: t("branchTitle", title || t("newChat")).slice(0, 200),
      created_at: now,
      updated_at: now,
      current_leaf_id: renamed.get(view.id),
      messages: messages.map((message) => ({
        ...message,
        id: renamed.get(message.id),
        parent_id: message.parent_id === null ? null : renamed.get(message.parent_id),
        conversation_id: undefined,
        generation_id: undefined,
        rating: undefined,
      })),
    };
    const file = new Blob([`{"antiphon_export":1}\n${JSON.stringify(copy)}\n`], { type: "application/x-ndjson" });
    const report = await api.importFile(file, "branch.jsonl");
    const made = report.conversations[0]?.id;
    if (!made) throw new Error(report.conversations[0]?.reason ?? "");
    await refreshConversations();
    go(made);
    showToast(t("branched"));
  } catch {
    showToast(t("branchFailed"));
  }
}
