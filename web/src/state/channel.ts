/** Tells the other tabs of this browser about new turns, so that the same answer runs in all of them. */

interface TurnNews {
  conversation: string;
  message: string;
  parent: string | null;
}

const channel = "BroadcastChannel" in globalThis ? new BroadcastChannel("antiphon") : undefined;

export function announceTurn(conversation: string, message: string, parent: string | null): void {
  channel?.postMessage({ conversation, message, parent } satisfies TurnNews);
}

export function onTurnElsewhere(run: (news: TurnNews) => void): void {
  channel?.addEventListener("message", (event: MessageEvent<TurnNews>) => run(event.data));
}
