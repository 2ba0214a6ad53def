import { t } from "../i18n";
import { bytes } from "../i18n/format";
import { byteLength, type Attachment } from "../state/attachments";
import { Icon } from "./Icon";

interface AttachmentsProps {
  list: readonly Attachment[];
  inline(key: string): void;
  remove(key: string): void;
}

/** The chips of texts that go with the next message. */
export function Attachments({ list, inline, remove }: AttachmentsProps) {
  return (
    <ul class="chips" aria-label={t("attachments")}>
      {list.map((one) => (
        <li key={one.key} class="chip" data-testid="attachment">
          <Icon name="file" size={18} />
          <span class="chip-text">
            <b dir="auto">{one.name}</b>
            <small>
              {bytes(byteLength(one.text))} ·{" "}
              <button type="button" class="link" onClick={() => inline(one.key)}>
                {t("insertText")}
              </button>
            </small>
          </span>
          <button type="button" class="action" aria-label={t("removeAttachment", one.name)} onClick={() => remove(one.key)}>
            <Icon name="close" size={14} />
          </button>
        </li>
      ))}
    </ul>
  );
}

/** A sent text under its message: its name, and the whole of it when it is opened. */
export function SentAttachment({ one }: { one: Attachment }) {
  return (
    <details class="sent-file">
      <summary>
        <Icon name="file" size={16} />
        <b dir="auto">{one.name}</b>
        <small>{bytes(byteLength(one.text))}</small>
      </summary>
      <pre dir="auto" tabIndex={0}>
        {one.text}
      </pre>
    </details>
  );
}
