/** How far the shown text may lag behind the received one. */
const CATCH_UP_MS = 120;

/** The length to show next, so that bursts look smooth and nothing lags more than about `CATCH_UP_MS`. Never inside a surrogate pair. */
export function nextLength(text: string, shown: number, elapsedMs: number): number {
  if (shown >= text.length) return text.length;
  const share = Math.min(1, elapsedMs / CATCH_UP_MS);
  let next = Math.min(text.length, shown + Math.max(1, Math.ceil((text.length - shown) * share)));
  const code = text.charCodeAt(next - 1);
  if (next < text.length && code >= 0xd800 && code <= 0xdbff) next += 1;
  return next;
}
