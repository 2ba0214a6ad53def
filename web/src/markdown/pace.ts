/** How far the shown text lags behind the received one. */
export const LAG_MS = 90;

interface Arrival {
  /** When the first and when the last of its characters may be shown. */
  from: number;
  to: number;
  /** The text's length before and after. */
  before: number;
  after: number;
}

/**
 * Plays a text that comes in bursts at an even pace: what came at a moment is shown `LAG_MS` later, spread over the time since the
 * burst before it, or over `LAG_MS` where that is longer ago. So nothing is ever shown later than that.
 */
export class Playout {
  private arrivals: Arrival[] = [];
  private length = 0;
  private lastAt = -Infinity;

  /** The text is `length` long at `now` (milliseconds of a clock that never goes back). A shorter text is another one. */
  came(length: number, now: number): void {
    if (length < this.length) this.arrivals = [];
    else if (length > this.length) this.arrivals.push({ from: Math.max(this.lastAt + LAG_MS, now), to: now + LAG_MS, before: this.length, after: length });
    this.length = length;
    this.lastAt = now;
  }

  /** All of it is to be shown at once. */
  catchUp(): void {
    this.arrivals = [];
  }

  /** How much of the text to show at `now`. */
  lengthAt(now: number): number {
    while (this.arrivals[0] && this.arrivals[0].to <= now) this.arrivals.shift();
    const next = this.arrivals[0];
    if (!next) return this.length;
    if (now <= next.from) return next.before;
    return next.before + Math.floor(((next.after - next.before) * (now - next.from)) / (next.to - next.from));
  }
}

/** `length`, moved on by one where it would cut a surrogate pair in two. */
export function wholeLength(text: string, length: number): number {
  const code = text.charCodeAt(length - 1);
  return length < text.length && code >= 0xd800 && code <= 0xdbff ? length + 1 : length;
}
