import { useRef } from "preact/hooks";
import { Icon } from "../components/Icon";
import { Modal } from "../components/Modal";
import { change } from "../components/Row";
import { t } from "../i18n";
import { folders, headOf } from "../state/conversations";
import { closeDialog } from "./open";

/** Puts a chat into a folder, an existing one or a new one, or takes it out. */
export function Move({ id }: { id: string }) {
  const field = useRef<HTMLInputElement>(null);
  const item = headOf(id);
  if (!item) return null;
  const put = (folder: string | null) => {
    closeDialog();
    void change(item, { folder }, folder === null ? t("folderLeft") : t("movedTo", folder));
  };
  return (
    <Modal title={t("moveTitle")} close={closeDialog}>
      <ul class="lines">
        {folders.value.map((folder) => (
          <li key={folder.name}>
            <button type="button" class="menu-item" aria-current={item.folder === folder.name} onClick={() => put(folder.name)}>
              <Icon name="folder" size={16} />
              <span class="menu-text" dir="auto">
                {folder.name}
              </span>
              {item.folder === folder.name && <Icon name="check" size={16} />}
            </button>
          </li>
        ))}
      </ul>
      <form
        class="copy-line"
        onSubmit={(event) => {
          event.preventDefault();
          const name = field.current?.value.trim();
          if (name) put(name);
        }}
      >
        <input ref={field} class="field" maxLength={200} dir="auto" placeholder={t("newFolder")} aria-label={t("newFolder")} />
        <button type="submit" class="button primary">
          {t("create")}
        </button>
      </form>
      {item.folder !== null && (
        <div class="dialog-actions">
          <button type="button" class="button" onClick={() => put(null)}>
            {t("leaveFolder", item.folder)}
          </button>
        </div>
      )}
    </Modal>
  );
}
