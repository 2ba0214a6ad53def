/** The public HTTP API, as far as this client uses it. */

export type MessageStatus = "streaming" | "complete" | "cancelled" | "failed" | "interrupted";

export interface Conversation {
  id: string;
  title: string;
  model: string | null;
  current_leaf_id: string | null;
  version: number;
  pinned: boolean;
  archived: boolean;
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
  generation_id: string | null;
  created_at: string;
  error: MessageError | null;
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
  status: "ready" | "loading" | "down";
  load: "normal" | "high" | "full";
  context_tokens: number;
  allowed: boolean;
}

export interface Me {
  user_id: string;
  name: string;
  plan: string;
}

/** A refusal of the server (problem+json), or `code = "network"` when no answer came (`status` 0). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly retryAfterMs: number | undefined = undefined,
    readonly requestId: string | undefined = undefined,
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
  if (options.keepalive) init.keepalive = true;
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch {
    throw new Problem(0, "network", "Antiphon cannot be reached.");
  }
  if (response.ok) {
    if (response.status === 204) return undefined as T;
    return (await response.json().catch(() => {
      throw new Problem(0, "network", "The answer was cut off.");
    })) as T;
  }
  const problem = await readProblem(response);
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
  const detail = faults || body.detail || body.title || `The server answered ${response.status}.`;
  const header = Number(response.headers.get("Retry-After"));
  const retry = body.retry_after_ms ?? (header > 0 ? header * 1000 : undefined);
  return new Problem(response.status, body.code ?? "internal", detail, retry, body.request_id);
}

const part = encodeURIComponent;

export const api = {
  signIn: (token: string) => call<void>("POST", "/v1/session", { body: { token } }),
  signOut: () => call<void>("DELETE", "/v1/session", { body: {} }),
  me: () => call<Me>("GET", "/v1/me"),
  models: () => call<{ data: Model[] }>("GET", "/v1/models"),

  conversations: (after?: string) =>
    call<{ data: Conversation[]; next: string | null }>("GET", `/v1/conversations?limit=50${after ? `&after=${part(after)}` : ""}`),
  conversation: (id: string) => call<Conversation>("GET", `/v1/conversations/${part(id)}`),
  createConversation: (model?: string) => call<Conversation>("POST", "/v1/conversations", { body: model ? { model } : {} }),
  updateConversation: (id: string, patch: { title?: string; current_leaf_id?: string; pinned?: boolean }) =>
    call<Conversation>("PATCH", `/v1/conversations/${part(id)}`, { body: patch }),
  deleteConversation: (id: string) => call<void>("DELETE", `/v1/conversations/${part(id)}`),

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
  cancel: (generation: string, seenId: string | undefined) =>
    call<unknown>("POST", `/v1/generations/${part(generation)}/cancel`, { body: seenId ? { seen_id: seenId } : {} }),
};

/** Address of a generation's event stream. */
export function streamUrl(generation: string): string {
  return `/v1/generations/${part(generation)}/stream`;
}
