import { computed, signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { isAbsent, Problem, read, write } from "../api";
import { copyText } from "../clipboard";
import { t, type Key } from "../i18n";
import { day } from "../i18n/format";
import { me } from "../state/session";
import { showToast } from "../state/toast";

interface Person {
  id: string;
  name: string;
  role: string;
  plan: string;
  disabled: boolean;
  created_at: string;
}

const PEOPLE = "/v1/admin/users";
const ROLES: readonly (readonly [string, Key])[] = [
  ["member", "roleMember"],
  ["admin", "roleAdmin"],
  ["owner", "roleOwner"],
];

function tell(error: unknown): void {
  showToast(error instanceof Problem ? error.message : t("changeFailed"));
}

interface RowProps {
  person: Person;
  change(person: Person, patch: Partial<Person>): Promise<void>;
  link(person: Person): Promise<void>;
}

function Row({ person, change, link }: RowProps) {
  const own = person.id === me.value?.user_id;
  return (
    <tr data-testid="person" class={person.disabled ? "disabled" : undefined}>
      <th scope="row" dir="auto">
        <span class="own">{person.name}</span>
      </th>
      <td>
        <select class="field" aria-label={`${t("role")}: ${person.name}`} value={person.role} disabled={own} onChange={(event) => void change(person, { role: event.currentTarget.value })}>
          {ROLES.map(([role, words]) => (
            <option key={role} value={role}>
              {t(words)}
            </option>
          ))}
        </select>
      </td>
      <td>
        <select class="field" aria-label={`${t("plan")}: ${person.name}`} value={person.plan} onChange={(event) => void change(person, { plan: event.currentTarget.value })}>
          {[...new Set([...plans.value, person.plan])].map((plan) => (
            <option key={plan} value={plan}>
              {plan}
            </option>
          ))}
        </select>
      </td>
      <td>{day(person.created_at)}</td>
      <td>
        <span class="button-row">
          <button type="button" class="button small" disabled={person.disabled} onClick={() => void link(person)}>
            {t("signInLink")}
          </button>
          {!own && (
            <button type="button" class="button small" onClick={() => void change(person, { disabled: !person.disabled })}>
              {person.disabled ? t("enable") : t("disable")}
            </button>
          )}
        </span>
      </td>
    </tr>
  );
}

/** A link that lets somebody in; it is shown once. */
function Invitation({ url }: { url: string }) {
  return (
    <div class="invitation" data-testid="invitation">
      <p class="soft">{t("invitationNote")}</p>
      <div class="copy-line">
        <input class="field" readOnly value={url} aria-label={t("signInLink")} dir="ltr" />
        <button type="button" class="button primary" onClick={() => void copyText(url).then((done) => showToast(done ? t("copied") : t("copyRefused")))}>
          {t("copy")}
        </button>
      </div>
    </div>
  );
}

const people = signal<readonly Person[]>([]);
const plans = signal<readonly string[]>([]);

/** People's names by their ids. */
export const names = computed(() => Object.fromEntries(people.value.map((person) => [person.id, person.name])));

async function reread(): Promise<void> {
  people.value = (await read<{ data: Person[] }>(PEOPLE)).data;
}

async function readPlans(): Promise<void> {
  plans.value = (await read<{ data: { name: string }[] }>("/v1/admin/plans")).data.map((plan) => plan.name);
}

/** Everybody of the organisation: invited, given a role and a plan, kept out. */
export function People() {
  const url = useSignal<string | null>(null);
  const name = useRef<HTMLInputElement>(null);
  useEffect(() => void Promise.all([reread(), readPlans()]).catch((error: unknown) => !isAbsent(error) && tell(error)), []);
  const list = people.value;
  if (list.length === 0) return null;

  const change = (person: Person, patch: Partial<Person>) => write("PATCH", `${PEOPLE}/${encodeURIComponent(person.id)}`, patch).catch(tell).then(reread);
  const link = (person: Person) =>
    write<{ url: string }>("POST", `${PEOPLE}/${encodeURIComponent(person.id)}/link`, {}).then((made) => {
      url.value = made.url;
    }, tell);
  const invite = async () => {
    const wanted = name.current?.value.trim();
    if (!wanted) return name.current?.focus();
    try {
      url.value = (await write<{ url: string }>("POST", PEOPLE, { name: wanted })).url;
      if (name.current) name.current.value = "";
      await reread();
    } catch (error) {
      tell(error);
    }
  };

  return (
    <details class="pool" data-testid="people">
      <summary>
        <h2>
          {t("users")} <small>{list.length}</small>
        </h2>
      </summary>
      <div class="scroll-x" tabIndex={0} role="group" aria-label={t("users")}>
        <table>
          <thead>
            <tr>
              <th scope="col">{t("name")}</th>
              <th scope="col">{t("role")}</th>
              <th scope="col">{t("plan")}</th>
              <th scope="col">{t("added")}</th>
              <th scope="col">
                <span class="visually-hidden">{t("changes")}</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {list.map((person) => (
              <Row key={person.id} person={person} change={change} link={link} />
            ))}
          </tbody>
        </table>
      </div>
      {url.value !== null && <Invitation url={url.value} />}
      <form
        class="copy-line"
        onSubmit={(event) => {
          event.preventDefault();
          void invite();
        }}
      >
        <input ref={name} class="field" maxLength={200} dir="auto" placeholder={t("name")} aria-label={t("inviteName")} />
        <button type="submit" class="button">
          {t("invite")}
        </button>
      </form>
    </details>
  );
}
