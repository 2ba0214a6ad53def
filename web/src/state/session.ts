import { computed, signal } from "@preact/signals";
import { api, onSignedOut, Problem, type Me, type Model, type PasswordState, type Proof } from "../api";
import { t } from "../i18n";
import { forgetActivity } from "./activity";
import { forgetDrafts } from "./drafts";

export type SessionState = "starting" | "choosing" | "in" | "out" | "unreachable";

const KNOWN_KEY = "antiphon.known";
/** Set from the moment a link signed in until it is settled that its user needs no password, has one or wants none. */
const LINK_KEY = "antiphon.link";

/** What is known of a password that is to be chosen before the chat opens; the session is `choosing` as long. */
export const wantedPassword = signal<PasswordState | null>(null);
/** A browser that was signed in when it was last here draws the chat at once and finds out meanwhile whether it still is. */
export const session = signal<SessionState>(localStorage.getItem(KNOWN_KEY) === null || location.search.includes("token=") ? "starting" : "in");
export const me = signal<Me | null>(null);
/** Every model of this server; `models` are those that may be used. */
export const allModels = signal<Model[]>([]);
export const models = computed(() => allModels.value.filter((model) => model.allowed !== false));
export const chosenModel = signal<string | null>(null);
/** Why a sign-in link did not work; shown on the signed-out page. */
export const signInFault = signal<string | null>(null);

const MODEL_KEY = "antiphon.model";
const DEFAULT_KEY = "antiphon.model.default";

/** The model that a page begins with; without one it is the model used last. */
export const defaultModel = signal<string | null>(localStorage.getItem(DEFAULT_KEY));

export function chooseDefaultModel(id: string | null): void {
  defaultModel.value = id;
  if (id === null) localStorage.removeItem(DEFAULT_KEY);
  else localStorage.setItem(DEFAULT_KEY, id);
}

/** Reads `?token=` and takes it out of the address at once, so that it stays in no history entry. */
function takeToken(): string | null {
  const url = new URL(location.href);
  const token = url.searchParams.get("token");
  if (token === null) return null;
  url.searchParams.delete("token");
  history.replaceState(history.state, "", url.pathname + url.search + url.hash);
  return token;
}

function leave(): void {
  localStorage.removeItem(KNOWN_KEY);
  localStorage.removeItem(LINK_KEY);
  session.value = "out";
}

export async function startSession(): Promise<void> {
  onSignedOut(leave);
  const token = takeToken();
  if (token !== null) await useToken(token);
  else if (session.value === "in") void refreshModels();
  await enter();
}

/** Signs in with a token; `false` and `signInFault` when the server refuses it. */
export async function useToken(token: string): Promise<boolean> {
  const done = await signIn({ token }, t("linkExpired"));
  if (done) localStorage.setItem(LINK_KEY, "1");
  return done;
}

/** Signs in with a name and its password; `false` and `signInFault` when the server refuses them. */
export function usePassword(name: string, password: string): Promise<boolean> {
  return signIn({ name, password }, t("passwordWrong"));
}

async function signIn(proof: Proof, refused: string): Promise<boolean> {
  try {
    await api.signIn(proof);
    signInFault.value = null;
    return true;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    signInFault.value = error.status === 0 ? t("unreachableRunning") : error.status === 401 ? refused : error.message;
    return false;
  }
}

/** Asks who we are, until there is an answer. */
export async function enter(): Promise<void> {
  for (let delay = 500; ; delay = Math.min(delay * 2, 8000)) {
    try {
      const found = await api.me();
      if (me.value !== null && me.value.user_id !== found.user_id) return location.assign("/");
      me.value = found;
      signInFault.value = null;
      if (await isPasswordAsked()) session.value = "choosing";
      else open();
      return;
    } catch (error) {
      if (error instanceof Problem && error.status > 0 && error.status < 500) {
        leave();
        return;
      }
      session.value = "unreachable";
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }
}

function open(): void {
  localStorage.setItem(KNOWN_KEY, "1");
  if (session.value !== "in") void refreshModels();
  session.value = "in";
}

/** Whether whoever came by a link is to choose a password first. A server that does not say so now is asked at the next start. */
async function isPasswordAsked(): Promise<boolean> {
  if (localStorage.getItem(LINK_KEY) === null) return false;
  wantedPassword.value = await api.password().catch(() => null);
  if (wantedPassword.value?.asked === false) localStorage.removeItem(LINK_KEY);
  return wantedPassword.value?.asked === true;
}

/** A password has been chosen, or is not wanted. */
export function endChoosing(): void {
  localStorage.removeItem(LINK_KEY);
  open();
}

export async function signOut(): Promise<void> {
  await api.signOut().catch(() => undefined);
  localStorage.removeItem(KNOWN_KEY);
  localStorage.removeItem(LINK_KEY);
  forgetDrafts();
  forgetActivity();
  location.assign("/");
}

let modelTimer: ReturnType<typeof setTimeout> | undefined;

export async function refreshModels(): Promise<void> {
  clearTimeout(modelTimer);
  try {
    allModels.value = (await api.models()).data;
  } catch {
    modelTimer = setTimeout(() => void refreshModels(), 5000);
    return;
  }
  const wanted = chosenModel.value ?? localStorage.getItem(DEFAULT_KEY) ?? localStorage.getItem(MODEL_KEY);
  const found = models.value.find((model) => model.id === wanted) ?? models.value[0];
  chosenModel.value = found?.id ?? null;
  const moving = models.value.some((model) => model.status === "loading" || (model.load !== "normal" && model.loaded !== false));
  const away = models.value.some((model) => model.loaded === false);
  if (moving || away) modelTimer = setTimeout(() => void refreshModels(), moving ? 2000 : 10_000);
}

export function chooseModel(id: string): void {
  chosenModel.value = id;
  localStorage.setItem(MODEL_KEY, id);
}
