import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { api, isAbsent, Problem, read } from "../api";
import { t, type Key } from "../i18n";
import { duration, moment, number } from "../i18n/format";
import { showToast } from "../state/toast";

type Row = Record<string, unknown>;

interface Column {
  words: Key;
  show(row: Row): ComponentChildren;
}

interface TableEntry {
  address: string;
  words: Key;
  columns: readonly Column[];
}

function text(value: unknown): string {
  if (value === null || value === undefined || value === "") return "—";
  if (typeof value === "number") return number(value);
  return Array.isArray(value) ? value.map(text).join(", ") || "—" : String(value);
}

function at(row: Row, path: string): unknown {
  return path.split(".").reduce<unknown>((value, name) => (value as Row | null | undefined)?.[name], row);
}

function plain(words: Key, path: string): Column {
  return { words, show: (row) => text(at(row, path)) };
}

function time(words: Key, path: string): Column {
  return { words, show: (row) => moment(String(at(row, path))) };
}

interface Cap {
  model: string;
  messages: number;
  window_seconds: number;
}

const PLANS: TableEntry = {
  address: "/v1/admin/plans",
  words: "plans",
  columns: [
    plain("name", "name"),
    { words: "models", show: (row) => ((row["models"] as string[]).length === 0 ? t("all") : text(row["models"])) },
    plain("priority", "priority"),
    plain("limitTokensMinute", "tokens_per_minute"),
    plain("limitRequestsMinute", "requests_per_minute"),
    plain("limitConcurrency", "concurrency"),
    {
      words: "limitMessages",
      show: (row) => text((row["caps"] as Cap[]).map((cap) => t("capOf", cap.model, number(cap.messages), duration(cap.window_seconds * 1000)))),
    },
  ],
};

const USAGE: TableEntry = {
  address: "/v1/admin/usage?group_by=user,model",
  words: "usageMonth",
  columns: [
    plain("user", "group.user"),
    plain("model", "group.model"),
    plain("messages", "usage.messages"),
    plain("tokensIn", "usage.prompt_tokens"),
    plain("tokensCached", "usage.cached_tokens"),
    plain("tokensOut", "usage.output_tokens"),
    { words: "acceleratorTime", show: (row) => duration(Number(at(row, "usage.accelerator_ms"))) },
    plain("cost", "usage.cost"),
  ],
};

function KeyEnd({ id }: { id: string }) {
  const ended = useSignal(false);
  const end = () => api.revokeKey(id).then(() => void (ended.value = true), (error: unknown) => showToast(error instanceof Problem ? error.message : t("changeFailed")));
  return ended.value ? (
    <span class="soft">{t("revoked")}</span>
  ) : (
    <button type="button" class="button small" onClick={() => void end()}>
      {t("revoke")}
    </button>
  );
}

const KEYS: TableEntry = {
  address: "/v1/admin/keys",
  words: "keys",
  columns: [
    plain("name", "name"),
    { words: "keyEnd", show: (row) => `…${String(row["last4"])}` },
    plain("user", "user_id"),
    plain("scopes", "scopes"),
    time("added", "created_at"),
    { words: "changes", show: (row) => <KeyEnd id={String(row["id"])} /> },
  ],
};

const FEEDBACK: TableEntry = {
  address: "/v1/admin/feedback?limit=100",
  words: "feedback",
  columns: [
    { words: "rating", show: (row) => (row["rating"] === 1 ? t("goodAnswer") : t("badAnswer")) },
    plain("model", "model"),
    plain("reasons", "reasons"),
    plain("comment", "comment"),
    plain("user", "user_id"),
    time("time", "at"),
  ],
};

const AUDIT: TableEntry = {
  address: "/v1/admin/audit?limit=100",
  words: "audit",
  columns: [plain("action", "action"), plain("subject", "subject"), plain("user", "user_id"), time("time", "at")],
};

function Table({ entry, names }: { entry: TableEntry; names: Record<string, string> }) {
  const rows = useSignal<readonly Row[] | null>(null);
  const fault = useSignal("");
  const load = () =>
    read<{ data: Row[] }>(entry.address).then(
      (answer) => void (rows.value = answer.data),
      (error: unknown) => void (fault.value = isAbsent(error) ? "" : error instanceof Problem ? error.message : t("unreachable")),
    );
  useEffect(() => void load(), []);
  if (rows.value === null && fault.value === "") return null;
  const named = (shown: ComponentChildren) => (typeof shown === "string" ? (names[shown] ?? shown) : shown);
  return (
    <details class="pool" onToggle={(event) => event.currentTarget.open && void load()}>
      <summary>
        <h2>
          {t(entry.words)} <small>{rows.value?.length}</small>
        </h2>
      </summary>
      {fault.value && <p class="fault">{fault.value}</p>}
      <div class="scroll-x" tabIndex={0} role="group" aria-label={t(entry.words)}>
        <table>
          <thead>
            <tr>
              {entry.columns.map(({ words }) => (
                <th key={words} scope="col">
                  {t(words)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.value?.map((row, number_) => (
              <tr key={typeof row["id"] === "string" ? row["id"] : number_}>
                {entry.columns.map(({ words, show }) => (
                  <td key={words} dir="auto" class="own">
                    {named(show(row))}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

/** Each list is shown where the server has it; `names` puts people's names for their ids. */
export function Tables({ names }: { names: Record<string, string> }) {
  return (
    <>
      {[USAGE, PLANS, KEYS, FEEDBACK, AUDIT].map((entry) => (
        <Table key={entry.address} entry={entry} names={names} />
      ))}
    </>
  );
}
