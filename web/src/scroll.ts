/** Nearer than this to the end counts as being there. */
const NEAR_PX = 48;
const FAR_PX = 200;
const CLOSE_PX = 60;
/** A smooth scroll has arrived after this long. */
const GLIDE_MS = 450;

/**
 * Keeps a scrolled pane at its end while its content grows, and lets go as soon as the reader moves up.
 *
 * The reader's intent is read from the input itself (wheel, touch, keys, a dragged scrollbar that moves up), never from
 * timers; content that grows does not count as a movement.
 */
export class ScrollKeeper {
  static shown: ScrollKeeper | undefined;
  private stuck = true;
  private lastTop = 0;
  private touchY = 0;
  private lastHeight = 0;
  private isFar = false;
  private gliding: ReturnType<typeof setTimeout> | undefined;
  private readonly observer: ResizeObserver;
  private readonly off = new AbortController();

  constructor(
    private readonly pane: HTMLElement,
    inner: HTMLElement,
    /** Whether the end is out of sight, and whether that is so because content came. */
    private readonly far: (far: boolean, grown: boolean) => void,
  ) {
    const options = { passive: true, signal: this.off.signal };
    pane.addEventListener("scroll", () => this.scrolled(), options);
    pane.addEventListener("wheel", (event) => event.deltaY < 0 && this.release(), options);
    pane.addEventListener("touchstart", (event) => (this.touchY = event.touches[0]?.clientY ?? 0), options);
    pane.addEventListener("touchmove", (event) => (event.touches[0]?.clientY ?? 0) > this.touchY + 4 && this.release(), options);
    addEventListener("keydown", (event) => this.key(event), options);
    this.observer = new ResizeObserver(() => this.resized());
    this.observer.observe(inner);
    this.observer.observe(pane);
    ScrollKeeper.shown = this;
  }

  close(): void {
    if (ScrollKeeper.shown === this) ScrollKeeper.shown = undefined;
    this.off.abort();
    clearTimeout(this.gliding);
    this.observer.disconnect();
  }

  toEnd(smooth: boolean): void {
    this.measure();
    this.stuck = true;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const glide = smooth && !calm && this.distance < 3 * this.pane.clientHeight;
    clearTimeout(this.gliding);
    this.gliding = glide ? setTimeout(() => this.landed(), GLIDE_MS) : undefined;
    this.pane.scrollTo({ top: this.pane.scrollHeight, behavior: glide ? "smooth" : "instant" });
  }

  /** Remembers what is on the screen; the returned function puts it back after content was added above. */
  hold(): () => void {
    const fromEnd = this.pane.scrollHeight - this.pane.scrollTop;
    this.release();
    return () => {
      this.pane.scrollTop = this.pane.scrollHeight - fromEnd;
    };
  }

  private landed(): void {
    clearTimeout(this.gliding);
    this.gliding = undefined;
    if (this.stuck && this.distance > 1) this.pane.scrollTop = this.pane.scrollHeight;
  }

  /** The reader stays where they are, whatever grows. */
  release(): void {
    this.gliding = undefined;
    if (this.pane.scrollHeight > this.pane.clientHeight) this.stuck = false;
  }

  private key(event: KeyboardEvent): void {
    const typing = event.target instanceof HTMLElement && event.target.closest("textarea, input");
    if (!typing && ["ArrowUp", "PageUp", "Home"].includes(event.key)) this.release();
  }

  private get distance(): number {
    return this.pane.scrollHeight - this.pane.clientHeight - this.pane.scrollTop;
  }

  private scrolled(): void {
    const { scrollTop } = this.pane;
    const near = this.distance < NEAR_PX;
    if (scrollTop < this.lastTop - 2 && !near && this.gliding === undefined) this.stuck = false;
    if (near && scrollTop >= this.lastTop) this.stuck = true;
    this.lastTop = scrollTop;
    this.tell(false);
  }

  /** Appears beyond one distance and goes again below another, so that it does not flicker between them. */
  private tell(grown: boolean): void {
    this.isFar = this.distance > (this.isFar ? CLOSE_PX : FAR_PX);
    this.far(this.isFar, grown);
  }

  private measure(): void {
    this.pane.style.setProperty("--view", `${this.pane.clientHeight}px`);
  }

  private resized(): void {
    this.measure();
    if (this.stuck && this.gliding === undefined && this.distance > 1) this.pane.scrollTop = this.pane.scrollHeight;
    this.lastTop = this.pane.scrollTop; // content that shrinks moves the pane, too; that is not the reader
    const grown = this.pane.scrollHeight > this.lastHeight;
    this.lastHeight = this.pane.scrollHeight;
    this.tell(grown);
  }
}

/** What is on the screen stays there while something else takes its place. */
export function holdPlace(): void {
  ScrollKeeper.shown?.release();
}
