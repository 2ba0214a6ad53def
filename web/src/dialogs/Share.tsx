import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api, Problem, type Share as ShareLink } from "../api";
import { copyText } from "../clipboard";
import { Icon } from "../components/Icon";
import { Modal } from "../components/Modal";
import { t } from "../i18n";
import { moment } from "../i18n/format";
import { headOf, titleOf } from "../state/conversations";
import { showToast } from "../state/toast";
import { closeDialog } from "./open";

/** Makes a link to a chat as it is now, and lists the links there are. */
export function Share({ id }: { id: string }) {
  const links = useSignal<readonly ShareLink[]>([]);
  const fault = useSignal("");
  const made = useSignal<string | null>(null);
  const field = useRef<HTMLInputElement>(null);
  const head = headOf(id);
  const read = async () => {
    links.value = (await api.shares()).data.filter((link) => link.conversation_id === id);
  };
  const tell = (error: unknown) => (fault.value = error instanceof Problem ? error.message : t("changeFailed"));
  useEffect(() => void read().catch(tell), []);
  const create = async () => {
    try {
      made.value = (await api.share(id)).url;
      await read();
      requestAnimationFrame(() => field.current?.select());
    } catch (error) {
      tell(error);
    }
  };
  const copy = async (url: string) => showToast((await copyText(url)) ? t("linkCopied") : t("copyRefused"));
  return (
    <Modal title={t("shareTitle")} close={closeDialog}>
      <p>{t("shareText", head ? titleOf(head) : "")}</p>
      {fault.value && <p class="fault">{fault.value}</p>}
      {made.value === null ? (
        <div class="dialog-actions">
          <button type="button" class="button primary" data-testid="share-create" onClick={() => void create()}>
            <Icon name="share" size={16} />
            {t("shareCreate")}
          </button>
        </div>
      ) : (
        <div class="copy-line">
          <input ref={field} class="field" readOnly value={made.value} aria-label={t("link")} dir="ltr" data-testid="share-url" />
          <button type="button" class="button primary" onClick={() => void copy(made.value ?? "")}>
            {t("copy")}
          </button>
        </div>
      )}
      {links.value.length > 0 && (
        <>
          <h3>{t("linksOfChat")}</h3>
          <ul class="lines">
            {links.value.map((link) => (
              <li key={link.id}>
                <span class="menu-text">
                  <a href={link.url} target="_blank" rel="noopener noreferrer" dir="ltr">
                    {link.url.replace(/^https?:\/\//, "").slice(0, 34)}…
                  </a>
                  <small class="own">{moment(link.created_at)}</small>
                </span>
                <button type="button" class="button small" onClick={() => void api.revokeShare(link.id).then(read).catch(tell)}>
                  {t("revoke")}
                </button>
              </li>
            ))}
          </ul>
        </>
      )}
    </Modal>
  );
}
