/** The public HTTP API, as far as this client uses it. */

import { t } from "./i18n";

export type MessageStatus = "streaming" | "complete" | "cancelled" | "failed" | "interrupted";

export interface Conversation {
  id: string;
  title: string;
  model: string | null;
  current_leaf_id: string | null;
  version: number;
  pinned: boolean;
  archived: boolean;
  temporary: boolean;
  folder: string | null;
  created_at: string;
  updated_at: string;
}

export interface MessageError {
  code: string;
  message: string;
  retryable: boolean;
}

export interface Message {
  id: string;
  conversation_id: string;
  parent_id: string | null;
  role: "system" | "user" | "assistant";
  content: string;
  status: MessageStatus;
  model: string | null;
  requested_model: string | null;
  finish_reason: string | null;
  prompt_tokens: number | null;
  cached_tokens: number | null;
  output_tokens: number | null;
  cost: string | null;
  generation_id: string | null;
  created_at: string;
  error: MessageError | null;
  /** The model's thinking, where the server keeps it. */
  reasoning?: string | null;
  /** What of the conversation the model was not given whole. */
  context?: ReadContext | null;
  /** The reader's own. */
  rating?: 1 | -1 | null;
}

export interface ReadContext {
  omitted: number;
  summarised: boolean;
  snippets: number;
}

export interface Path {
  data: Message[];
  siblings: Record<string, string[]>;
  next: string | null;
}

export interface TreeNode {
  id: string;
  parent_id: string | null;
  role: string;
  created_at: string;
}

export interface Accepted {
  conversation_id: string;
  user_message_id: string;
  message_id: string;
  generation_id: string;
  stream_url: string;
}

export interface Model {
  id: string;
  /** What the pool serves; absent where the server does not say. */
  model?: string;
  status: "ready" | "loading" | "down";
  load: "normal" | "high" | "full";
  wait_ms?: number;
  /** `false`: it is not in memory, and starts as soon as somebody asks it. */
  loaded?: boolean;
  context_tokens: number;
  allowed: boolean;
  /** Of a million tokens. */
  price: { input: string; cached_input: string; output: string } | null;
  /** While the status says so: since when, and how long it took the last time. */
  loading: { elapsed_ms: number; usual_ms: number | null } | null;
}

export interface Me {
  user_id: string;
  tenant_id: string;
  name: string;
  role: "owner" | "admin" | "member";
  plan: string;
  scopes: string[];
}

/** Whether the caller has a password, and whether to ask for one after a sign-in link; `skippable`: they have another way in. */
export interface PasswordState {
  set: boolean;
  asked: boolean;
  skippable: boolean;
  least_characters: number;
}

/** What one signs in with. */
export type Proof = { token: string } | { name: string; password: string };

export interface Page<T> {
  data: T[];
  next: string | null;
}

export interface Hit {
  conversation_id: string;
  message_id: string | null;
  title: string;
  /** HTML: escaped text with the hits in `<mark>`. */
  snippet: string;
}

/** A conversation as it was when it was shared. */
export interface SharedConversation {
  title: string;
  created_at: string;
  data: { role: Message["role"]; content: string; model: string | null; created_at: string }[];
}

export interface Share {
  id: string;
  url: string;
  conversation_id: string;
  title: string;
  created_at: string;
}

export interface ApiKey {
  id: string;
  name: string;
  scopes: string[];
  last4: string;
  created_at: string;
  revoked_at: string | null;
}

export interface SessionInfo {
  id: string;
  /** What the browser says of itself. */
  agent: string;
  created_at: string;
  expires_at: string;
  /** The one that asks. */
  current: boolean;
}

export interface ImportReport {
  conversations: { source_id: string; status: "imported" | "skipped" | "failed"; id: string | null; messages: number; reason: string | null }[];
  imported: number;
  skipped: number;
  failed: number;
}

export interface Generation {
  id: string;
  message_id: string;
  status: "queued" | "running" | "complete" | "cancelled" | "failed" | "interrupted";
  position: number | null;
  eta_ms: number | null;
  route: { requested: string; served: string; rule: string | null; reason: string | null };
  usage: {
    prompt_tokens: number;
    cached_tokens: number;
    output_tokens: number;
    queued_ms: number;
    prefill_ms: number;
    decode_ms: number;
    accelerator_ms: number;
    cost: string | null;
  };
}

export type PartKind = "system" | "instructions" | "memory" | "turn" | "summary" | "snippet";

/** What a model read for an answer. */
export interface Prompt {
  parts: { kind: PartKind; message_id?: string | null; text: string; tokens: number; cached: boolean | number }[];
  prompt_tokens: number;
  omitted: unknown[];
}

/** Whole numbers; a budget's are decimal strings. */
export interface Limit {
  name: string;
  model?: string | null;
  limit: number | string;
  used: number | string;
  remaining: number | string;
  resets_at: string | null;
}

export interface Usage {
  plan: string;
  limits: Limit[];
  today?: { messages: number; tokens: number; cost: string | null };
  month?: { messages: number; tokens: number; cost: string | null };
}

/** A refusal of the server (problem+json), or `code = "network"` when no answer came (`status` 0). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly retryAfterMs: number | undefined = undefined,
    readonly requestId: string | undefined = undefined,
    /** Everything the server said. */
    readonly body: Record<string, unknown> = {},
  ) {
    super(detail);
  }
}

let signedOut: () => void = () => undefined;

/** Registers what happens when any call is answered with 401. */
export function onSignedOut(run: () => void): void {
  signedOut = run;
}

interface CallOptions {
  body?: unknown;
  form?: FormData;
  headers?: Record<string, string>;
  keepalive?: boolean;
}

async function call<T>(method: string, url: string, options: CallOptions = {}): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
  const init: RequestInit = { method, headers, credentials: "same-origin", cache: "no-store" };
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(options.body);
  }
  if (options.form) init.body = options.form;
  if (options.keepalive) init.keepalive = true;
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch {
    throw new Problem(0, "network", t("unreachable"));
  }
  if (response.ok) {
    if (response.status === 204) return undefined as T;
    return (await response.json().catch(() => {
      throw new Problem(0, "network", t("answerCut"));
    })) as T;
  }
  const problem = await readProblem(response);
  if (options.form && "conversations" in problem.body) return problem.body as T;
  if (problem.status === 401 && url !== "/v1/session") signedOut();
  throw problem;
}

async function readProblem(response: Response): Promise<Problem> {
  const body = (await response.json().catch(() => ({}))) as {
    code?: string;
    detail?: string;
    title?: string;
    retry_after_ms?: number;
    request_id?: string;
    errors?: { path: string; reason: string }[];
  };
  const faults = body.errors?.map((fault) => fault.reason).join(" ");
  const detail = faults || body.detail || body.title || t("serverAnswered", response.status);
  const header = Number(response.headers.get("Retry-After"));
  const retry = body.retry_after_ms ?? (header > 0 ? header * 1000 : undefined);
  return new Problem(response.status, body.code ?? "internal", detail, retry, body.request_id ?? response.headers.get("X-Request-Id") ?? undefined, body);
}

const part = encodeURIComponent;

export interface ConversationPatch {
  title?: string;
  current_leaf_id?: string;
  pinned?: boolean;
  archived?: boolean;
  /** `null` takes it out of its folder. */
  folder?: string | null;
}

/** For the operator's page, which keeps its shapes to itself. */
export function read<T>(url: string): Promise<T> {
  return call<T>("GET", url);
}

export function write<T>(method: "POST" | "PUT" | "PATCH" | "DELETE", url: string, body: unknown): Promise<T> {
  return call<T>(method, url, { body });
}

/** Whether an error says that this server has no such route. */
export function isAbsent(error: unknown): boolean {
  return error instanceof Problem && (error.status === 404 || error.status === 405);
}

/** Where people may sign in besides here. */
export interface Provider {
  name: string;
  label: string;
}

export const api = {
  signIn: (proof: Proof) => call<void>("POST", "/v1/session", { body: proof }),
  signOut: () => call<void>("DELETE", "/v1/session", { body: {} }),
  providers: () => call<{ data: Provider[] }>("GET", "/v1/session/providers"),
  me: () => call<Me>("GET", "/v1/me"),
  models: () => call<{ data: Model[] }>("GET", "/v1/models"),

  conversations: (only: { after?: string | undefined; pinned?: boolean; archived?: boolean; folder?: string; limit?: number } = {}) => {
    const query = new URLSearchParams({ limit: String(only.limit ?? 50), archived: String(only.archived ?? false) });
    if (only.after) query.set("after", only.after);
    if (only.pinned !== undefined) query.set("pinned", String(only.pinned));
    if (only.folder !== undefined) query.set("folder", only.folder);
    return call<Page<Conversation>>("GET", `/v1/conversations?${query.toString()}`);
  },
  conversation: (id: string) => call<Conversation>("GET", `/v1/conversations/${part(id)}`),
  createConversation: (wanted: { model?: string; temporary?: boolean }) => call<Conversation>("POST", "/v1/conversations", { body: wanted }),
  updateConversation: (id: string, patch: ConversationPatch) => call<Conversation>("PATCH", `/v1/conversations/${part(id)}`, { body: patch }),
  deleteConversation: (id: string, keepalive = false) => call<void>("DELETE", `/v1/conversations/${part(id)}`, { keepalive }),
  folders: () => call<{ data: { name: string; conversations: number }[] }>("GET", "/v1/folders"),
  search: (q: string, after?: string) => call<Page<Hit>>("GET", `/v1/search?limit=30&q=${part(q)}${after ? `&after=${part(after)}` : ""}`),

  share: (id: string) => call<{ id: string; url: string }>("POST", `/v1/conversations/${part(id)}/share`, { body: {} }),
  shares: () => call<Page<Share>>("GET", "/v1/shares?limit=100"),
  shared: (token: string) => call<SharedConversation>("GET", `/v1/shared/${part(token)}`),
  revokeShare: (id: string) => call<void>("DELETE", `/v1/shares/${part(id)}`),

  importFile: (file: Blob, name: string) => {
    const form = new FormData();
    form.append("file", file, name);
    return call<ImportReport>("POST", "/v1/import", { form });
  },
  keys: () => call<{ data: ApiKey[] }>("GET", "/v1/keys"),
  createKey: (name: string) => call<ApiKey & { key: string }>("POST", "/v1/keys", { body: { name } }),
  revokeKey: (id: string) => call<void>("DELETE", `/v1/keys/${part(id)}`),
  sessions: () => call<{ data: SessionInfo[] }>("GET", "/v1/me/sessions"),
  endSession: (id: string) => call<void>("DELETE", `/v1/me/sessions/${part(id)}`, { body: {} }),
  password: () => call<PasswordState>("GET", "/v1/me/password"),
  setPassword: (password: string, current: string) => call<void>("PUT", "/v1/me/password", { body: { password, ...(current ? { current_password: current } : {}) } }),
  endAccount: () => call<void>("DELETE", "/v1/me", { body: {} }),
  usage: () => call<Usage>("GET", "/v1/usage"),

  path: (id: string, options: { leaf?: string | undefined; before?: string | undefined } = {}) => {
    const query = new URLSearchParams({ limit: "40" });
    if (options.leaf) query.set("leaf", options.leaf);
    if (options.before) query.set("before", options.before);
    return call<Path>("GET", `/v1/conversations/${part(id)}/messages?${query.toString()}`);
  },
  tree: (id: string) => call<{ data: TreeNode[] }>("GET", `/v1/conversations/${part(id)}/tree`),

  send: (id: string, key: string, body: { content: string | null; parent_message_id: string | null; model?: string }) =>
    call<Accepted>("POST", `/v1/conversations/${part(id)}/messages`, { body, headers: { "Idempotency-Key": key } }),
  continueMessage: (id: string, key: string) =>
    call<Accepted>("POST", `/v1/messages/${part(id)}/continue`, { body: {}, headers: { "Idempotency-Key": key } }),
  generation: (id: string) => call<Generation>("GET", `/v1/generations/${part(id)}`),
  prompt: (id: string) => call<Prompt>("GET", `/v1/generations/${part(id)}/prompt`),
  feedback: (id: string, given: { rating: 1 | -1 | 0; reasons?: string[]; comment?: string }) =>
    call<void>("PUT", `/v1/messages/${part(id)}/feedback`, { body: given }),
  cancel: (generation: string, seenId: string | undefined) =>
    call<unknown>("POST", `/v1/generations/${part(generation)}/cancel`, { body: seenId ? { seen_id: seenId } : {} }),
};

/** Address of a generation's event stream. */
export function streamUrl(generation: string): string {
  return `/v1/generations/${part(generation)}/stream`;
}
