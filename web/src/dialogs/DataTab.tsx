import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api, isAbsent, Problem, type Conversation, type ImportReport, type Share } from "../api";
import { confirmAction } from "../components/Dialog";
import { Icon } from "../components/Icon";
import { change, deleteAll } from "../components/Row";
import { t } from "../i18n";
import { day, moment, number } from "../i18n/format";
import { refreshConversations, titleOf } from "../state/conversations";
import { go } from "../state/router";
import { showToast } from "../state/toast";
import { Line } from "./Line";
import { closeDialog } from "./open";

function Report({ file, report }: { file: string; report: ImportReport }) {
  const words = { imported: t("imported"), skipped: t("skipped"), failed: t("importFailed") };
  return (
    <section class="report" data-testid="import-report" aria-label={t("importReport", file)}>
      <p>
        <b dir="auto">{file}</b> {t("importCounts", number(report.imported), number(report.skipped), number(report.failed))}
      </p>
      <ul class="lines compact">
        {report.conversations.slice(0, 200).map((line) => (
          <li key={line.source_id}>
            <span class={`state-dot ${line.status === "imported" ? "ready" : line.status === "failed" ? "down" : "busy"}`} aria-hidden="true" />
            <span class="menu-text">
              {line.id ? (
                <button
                  type="button"
                  class="link"
                  onClick={() => {
                    closeDialog();
                    go(line.id);
                  }}
                >
                  {words[line.status]} · {t("messageCount", line.messages)}
                </button>
              ) : (
                `${words[line.status]} · ${t("messageCount", line.messages)}`
              )}
              <small dir="auto">{line.reason ?? line.source_id}</small>
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Import() {
  const files = useRef<HTMLInputElement>(null);
  const busy = useSignal<string | null>(null);
  const fault = useSignal("");
  const reports = useSignal<readonly { file: string; report: ImportReport }[]>([]);
  const run = async (list: FileList | null) => {
    fault.value = "";
    reports.value = [];
    for (const file of list ?? []) {
      busy.value = file.name;
      try {
        reports.value = [...reports.value, { file: file.name, report: await api.importFile(file, file.name) }];
      } catch (error) {
        fault.value = `${file.name}: ${error instanceof Problem ? error.message : t("pageFailed")}`;
      }
    }
    busy.value = null;
    void refreshConversations();
  };
  return (
    <>
      <Line name={t("importChats")} note={t("importNote")}>
        <button type="button" class="button" disabled={busy.value !== null} onClick={() => files.current?.click()}>
          <Icon name="upload" size={16} />
          {busy.value === null ? t("chooseFiles") : t("importing")}
        </button>
      </Line>
      <input
        ref={files}
        type="file"
        multiple
        hidden
        data-testid="import-file"
        accept=".json,.jsonl,.zip,.ndjson"
        onChange={(event) => void run(event.currentTarget.files).then(() => files.current && (files.current.value = ""))}
      />
      {busy.value !== null && <progress aria-label={t("importing")} />}
      {fault.value && <p class="fault">{fault.value}</p>}
      {reports.value.map(({ file, report }) => (
        <Report key={file} file={file} report={report} />
      ))}
    </>
  );
}

function Shares() {
  const links = useSignal<readonly Share[]>([]);
  const read = async () => {
    links.value = (await api.shares()).data;
  };
  useEffect(() => void read().catch(() => undefined), []);
  if (links.value.length === 0) return null;
  return (
    <section>
      <h3>{t("sharedLinks")}</h3>
      <ul class="lines compact">
        {links.value.map((link) => (
          <li key={link.id}>
            <span class="menu-text">
              <a class="own" href={link.url} target="_blank" rel="noopener noreferrer" dir="auto">
                {link.title || t("newChat")}
              </a>
              <small class="own">{moment(link.created_at)}</small>
            </span>
            <button type="button" class="button small" onClick={() => void api.revokeShare(link.id).then(read, () => showToast(t("changeFailed")))}>
              {t("revoke")}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Archived() {
  const items = useSignal<readonly Conversation[]>([]);
  const read = async () => {
    items.value = (await api.conversations({ archived: true, limit: 100 })).data;
  };
  useEffect(() => void read().catch(() => undefined), []);
  if (items.value.length === 0) return null;
  return (
    <section>
      <h3>{t("archivedChats")}</h3>
      <ul class="lines compact">
        {items.value.map((item) => (
          <li key={item.id}>
            <span class="menu-text">
              <button
                type="button"
                class="link own"
                dir="auto"
                onClick={() => {
                  closeDialog();
                  go(item.id);
                }}
              >
                {titleOf(item)}
              </button>
              <small class="own">{day(item.updated_at)}</small>
            </span>
            <button type="button" class="button small" onClick={() => void change(item, { archived: false }, t("chatUnarchived")).then(read)}>
              {t("unarchive")}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

const EXPORTS = [
  ["antiphon", "exportOwn"],
  ["markdown", "exportMarkdown"],
  ["json", "exportJson"],
] as const;

export function DataTab() {
  const removeAll = async () => {
    if (!(await confirmAction(t("deleteAllTitle"), t("deleteAllText"), t("deleteAll")))) return;
    try {
      showToast(t("deletedCount", await deleteAll()));
    } catch (error) {
      showToast(isAbsent(error) ? t("changeFailed") : t("deleteFailed"));
    }
    go(null);
    void refreshConversations();
  };
  return (
    <>
      <Line name={t("exportChats")} note={t("exportNote")}>
        <span class="button-row">
          {EXPORTS.map(([format, words]) => (
            <a key={format} class="button" href={`/v1/export?format=${format}`} download data-testid={`export-${format}`}>
              <Icon name="download" size={16} />
              {t(words)}
            </a>
          ))}
        </span>
      </Line>
      <Import />
      <Shares />
      <Archived />
      <Line name={t("deleteAllTitle")} note={t("deleteAllText")}>
        <button type="button" class="button danger" onClick={() => void removeAll()}>
          {t("deleteAll")}
        </button>
      </Line>
    </>
  );
}
