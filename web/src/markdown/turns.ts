/** Work may hold up the page for this long at a time. */
const PORTION_MS = 8;

/**
 * Lets finished texts be drawn in turn, so that however many there are, no task is long: the newest first, since that is where a
 * conversation opens. The first portion comes before the next paint.
 */
class DrawingTurns {
  private readonly waiting: Generator<void, void, void>[] = [];
  private planned = false;

  /** Takes `steps` in turn; the returned function gives them up. */
  add(steps: Generator<void, void, void>): () => void {
    this.waiting.push(steps);
    if (!this.planned) {
      this.planned = true;
      queueMicrotask(() => this.portion());
    }
    return () => {
      const at = this.waiting.indexOf(steps);
      if (at >= 0) this.waiting.splice(at, 1);
    };
  }

  private portion(): void {
    const since = performance.now();
    for (let next = this.waiting.at(-1); next && performance.now() - since < PORTION_MS; next = this.waiting.at(-1)) {
      if (next.next().done) this.waiting.splice(this.waiting.indexOf(next), 1);
    }
    this.planned = this.waiting.length > 0;
    if (this.planned) setTimeout(() => this.portion(), 0);
  }
}

export const drawingTurns = new DrawingTurns();
