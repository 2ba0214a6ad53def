import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, isAbsent, Problem, type SessionInfo } from "../api";
import { Icon } from "../components/Icon";
import { t } from "../i18n";
import { moment } from "../i18n/format";
import { showToast } from "../state/toast";

const BROWSERS = [
  ["Edg", "Edge"],
  ["OPR", "Opera"],
  ["Firefox", "Firefox"],
  ["Chrome", "Chrome"],
  ["Safari", "Safari"],
] as const;
const SYSTEMS = [
  ["iPhone", "iPhone"],
  ["iPad", "iPad"],
  ["Android", "Android"],
  ["Windows", "Windows"],
  ["Mac OS", "macOS"],
  ["Linux", "Linux"],
] as const;

/** "Firefox · Linux" from what a browser says of itself; its own words where they name neither. */
export function deviceOf(agent: string): string {
  const named = (names: readonly (readonly [string, string])[]) => names.find(([mark]) => agent.includes(mark))?.[1];
  return [named(BROWSERS), named(SYSTEMS)].filter(Boolean).join(" · ") || agent.slice(0, 60);
}

/** Where the account is signed in; each place but this one can be signed out. */
export function Sessions() {
  const sessions = useSignal<readonly SessionInfo[]>([]);
  const read = async () => {
    sessions.value = (await api.sessions()).data;
  };
  useEffect(() => void read().catch((error: unknown) => !isAbsent(error) && showToast(t("unreachable"))), []);
  if (sessions.value.length === 0) return null;
  const end = (id: string) => api.endSession(id).then(read, (error: unknown) => showToast(error instanceof Problem ? error.message : t("changeFailed")));
  return (
    <section data-testid="sessions">
      <h3>{t("sessions")}</h3>
      <ul class="lines compact">
        {sessions.value.map((session) => (
          <li key={session.id}>
            <Icon name="screen" size={16} />
            <span class="menu-text">
              <span class="own">{deviceOf(session.agent) || t("unknownBrowser")}</span>
              <small>{session.current ? t("thisBrowser") : t("since", moment(session.created_at))}</small>
            </span>
            {!session.current && (
              <button type="button" class="button small" onClick={() => void end(session.id)}>
                {t("signOut")}
              </button>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
