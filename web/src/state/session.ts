import { computed, signal } from "@preact/signals";
import { api, onSignedOut, Problem, type Me, type Model } from "../api";
import { t } from "../i18n";
import { forgetActivity } from "./activity";
import { forgetDrafts } from "./drafts";

export type SessionState = "starting" | "in" | "out" | "unreachable";

export const session = signal<SessionState>("starting");
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

export async function startSession(): Promise<void> {
  onSignedOut(() => {
    if (session.value === "in") session.value = "out";
  });
  const token = takeToken();
  if (token !== null) await useToken(token);
  await enter();
}

/** Signs in with a token; `false` and `signInFault` when the server refuses it. */
export async function useToken(token: string): Promise<boolean> {
  try {
    await api.signIn(token);
    signInFault.value = null;
    return true;
  } catch (error) {
    signInFault.value =
      error instanceof Problem && error.status === 0 ? t("unreachableRunning") : t("linkExpired");
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
      session.value = "in";
      signInFault.value = null;
      void refreshModels();
      return;
    } catch (error) {
      if (error instanceof Problem && error.status > 0 && error.status < 500) {
        session.value = "out";
        return;
      }
      session.value = "unreachable";
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }
}

export async function signOut(): Promise<void> {
  await api.signOut().catch(() => undefined);
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
  if (models.value.some((model) => model.status === "loading" || model.load !== "normal")) modelTimer = setTimeout(() => void refreshModels(), 2000);
}

export function chooseModel(id: string): void {
  chosenModel.value = id;
  localStorage.setItem(MODEL_KEY, id);
}
