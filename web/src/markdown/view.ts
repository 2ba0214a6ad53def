import { BlockSplitter, type Block } from "./blocks";
import { dress } from "./dress";
import { blockHtml, blockNodes, openCode } from "./render";

/** Keeps an element's children in step with a growing markdown text; blocks that did not change keep their nodes. */
export class MarkdownView {
  private readonly splitter = new BlockSplitter();
  private html: string[] = [];
  private frozen = 0;
  /** The first block when last drawn: another one means that the text is another one. */
  private first: Block | undefined;

  constructor(private readonly root: HTMLElement) {}

  /** Shows a text that may still grow: only the blocks that can still change are looked at. */
  grow(text: string): void {
    const { blocks, frozenCount } = this.splitter.update(text);
    const same = this.first !== undefined && blocks[0] === this.first;
    this.reconcile(blocks, same ? Math.min(this.frozen, this.html.length) : 0, blocks.length);
    this.trim(blocks.length);
    this.frozen = frozenCount;
    this.first = blocks[0];
  }

  /** Until its turn comes a finished text stands there as it is, so that what is around it keeps its place. */
  outline(text: string): void {
    if (this.root.firstChild !== null) return;
    this.place(0).classList.add("outline");
    this.place(0).textContent = text;
  }

  /**
   * Shows a text that is finished. Yields after each block, so that a caller can spread a long text over several tasks. Blocks that
   * were drawn while it grew stay; only where a later definition may reach them they are all looked at again.
   */
  *finish(text: string): Generator<void, void, void> {
    if (this.frozen > 0 && !hasDefinitions(text)) return this.grow(text);
    const blocks = BlockSplitter.whole(text);
    for (let at = 0; at < blocks.length; at += 1) {
      this.reconcile(blocks, at, at + 1);
      yield;
    }
    this.trim(blocks.length);
    this.frozen = 0;
  }

  private reconcile(blocks: readonly Block[], from: number, to: number): void {
    for (let at = from; at < to; at += 1) {
      const block = blocks[at];
      if (block === undefined) continue;
      const place = this.place(at);
      const growing = openCode(block.token);
      if (growing && growCode(place, growing)) {
        this.html[at] = "";
        continue;
      }
      const html = blockHtml(block.token);
      if (this.html[at] === html) continue;
      place.className = "block";
      place.replaceChildren(blockNodes(html));
      dress(place);
      this.html[at] = html;
    }
  }

  private trim(count: number): void {
    while (this.root.children.length > count) this.root.lastElementChild?.remove();
    this.html.length = count;
  }

  private place(at: number): HTMLElement {
    const found = this.root.children[at];
    if (found instanceof HTMLElement) return found;
    const made = document.createElement("div");
    made.className = "block";
    this.root.append(made);
    return made;
  }
}

/** Whether a link's address may stand elsewhere than the link. */
function hasDefinitions(text: string): boolean {
  return text.includes("]:");
}

/** An open code block that grew keeps its nodes, so that its scroll position and its copy button stay under the hand. */
function growCode(place: HTMLElement, code: { language: string; text: string }): boolean {
  const shown = place.querySelector("code");
  if (!shown || place.querySelector(".code-lang")?.textContent !== code.language) return false;
  const text = shown.firstChild;
  if (text instanceof Text && shown.childNodes.length === 1) {
    const before = text.data.replace(/\n$/, "");
    if (code.text.startsWith(before)) {
      text.replaceData(before.length, text.data.length - before.length, code.text.slice(before.length));
      return true;
    }
  }
  shown.textContent = code.text;
  return true;
}
