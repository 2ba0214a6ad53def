const FIRST_DELAY_MS = 400;
export const LAST_DELAY_MS = 15_000;
/** A server that restarts is back within so long: until then no wait is longer than `RESTART_DELAY_MS`, so that the gap stays short. */
const RESTART_MS = 8000;
const RESTART_DELAY_MS = 800;
/** A wait that was asked to be shorter counts as this long: a connection costs time, too. */
const LEAST_COUNTED_MS = 50;

/**
 * How long to wait before a lost stream is asked for again.
 *
 * The waits double from 0.4 s, to 0.8 s while a server may be restarting and to 15 s afterwards. Each is drawn between a quarter
 * and the whole of that, so that the readers of a server that went away do not all come back at once.
 */
export class ReconnectDelay {
  /** Connections lost since the last event. */
  failures = 0;
  private waited = 0;
  private ceiling = FIRST_DELAY_MS;

  constructor(private readonly random: () => number) {}

  /** An event came: the next loss starts anew. */
  heard(): void {
    this.failures = 0;
    this.waited = 0;
    this.ceiling = FIRST_DELAY_MS;
  }

  /** Milliseconds to wait now; `asked` is what the server wants instead. */
  next(asked: number | undefined): number {
    const delay = asked ?? this.ceiling * (0.25 + 0.75 * this.random());
    this.failures += 1;
    this.waited += Math.max(delay, LEAST_COUNTED_MS);
    this.ceiling = Math.min(this.ceiling * 2, this.waited < RESTART_MS ? RESTART_DELAY_MS : LAST_DELAY_MS);
    return delay;
  }
}
