import { useSignal } from "@preact/signals";
import { api, Problem } from "../api";
import { Icon } from "../components/Icon";
import { t, type Key } from "../i18n";
import { me, signOut } from "../state/session";
import { showToast } from "../state/toast";
import { Keys } from "./Keys";
import { Line } from "./Line";
import { Password } from "./Password";
import { Sessions } from "./Sessions";

const ROLES: Record<string, Key> = { owner: "roleOwner", admin: "roleAdmin", member: "roleMember" };

/** Ending an account cannot be undone: its name has to be typed. */
function EndAccount() {
  const asking = useSignal(false);
  const typed = useSignal("");
  const user = me.value;
  if (!user) return null;
  if (!asking.value) {
    return (
      <Line name={t("endAccount")} note={t("endAccountNote")}>
        <button type="button" class="button danger" onClick={() => (asking.value = true)}>
          {t("endAccount")}
        </button>
      </Line>
    );
  }
  const end = async () => {
    try {
      await api.endAccount();
      await signOut();
    } catch (error) {
      showToast(error instanceof Problem ? error.message : t("changeFailed"));
    }
  };
  return (
    <form
      class="end-account"
      onSubmit={(event) => {
        event.preventDefault();
        if (typed.value === user.name) void end();
      }}
    >
      <p>{t("typeName", user.name)}</p>
      <input class="field" aria-label={t("typeName", user.name)} autocomplete="off" onInput={(event) => (typed.value = event.currentTarget.value)} />
      <div class="dialog-actions">
        <button type="button" class="button" onClick={() => (asking.value = false)}>
          {t("cancel")}
        </button>
        <button type="submit" class="button danger" disabled={typed.value !== user.name}>
          {t("endAccount")}
        </button>
      </div>
    </form>
  );
}

export function AccountTab() {
  const user = me.value;
  if (!user) return null;
  return (
    <>
      <Line name={t("name")}>
        <span class="own" dir="auto">{user.name}</span>
      </Line>
      <Line name={t("role")}>
        <span>{t(ROLES[user.role] ?? "roleMember")}</span>
      </Line>
      <Line name={t("plan")}>
        <span class="own">{user.plan}</span>
      </Line>
      <Password />
      <Sessions />
      <Keys />
      <Line name={t("accountExport")} note={t("accountExportNote")}>
        <a class="button" href="/v1/me/export" download>
          <Icon name="download" size={16} />
          {t("download")}
        </a>
      </Line>
      <Line name={t("signOut")}>
        <button type="button" class="button" onClick={() => void signOut()}>
          {t("signOut")}
        </button>
      </Line>
      <EndAccount />
    </>
  );
}
