import { BlockSplitter, type Block } from "./blocks";
import { blockHtml, blockNodes } from "./render";

/** Keeps an element's children in step with a growing markdown text; blocks that did not change keep their nodes. */
export class MarkdownView {
  private readonly splitter = new BlockSplitter();
  private html: string[] = [];
  private frozen = 0;

  constructor(private readonly root: HTMLElement) {}

  /** `whole`: the text is finished, so later definitions may reach earlier blocks. */
  render(text: string, whole: boolean): void {
    if (whole) {
      this.reconcile(BlockSplitter.whole(text), 0);
      return;
    }
    const { blocks, frozenCount } = this.splitter.update(text);
    this.reconcile(blocks, Math.min(this.frozen, this.html.length));
    this.frozen = frozenCount;
  }

  private reconcile(blocks: Block[], from: number): void {
    for (let at = from; at < blocks.length; at += 1) {
      const block = blocks[at];
      if (block === undefined) continue;
      const html = blockHtml(block.token);
      if (this.html[at] === html) continue;
      const place = this.place(at);
      if (!growCode(place, html, this.html[at])) place.replaceChildren(blockNodes(html));
      this.html[at] = html;
    }
    while (this.root.children.length > blocks.length) this.root.lastElementChild?.remove();
    this.html.length = blocks.length;
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

/** A code block that only grew keeps its nodes, so that its scroll position and its copy button stay under the hand. */
function growCode(place: HTMLElement, html: string, before: string | undefined): boolean {
  if (before === undefined || !html.startsWith('<div class="code"') || !before.startsWith('<div class="code"')) return false;
  const now = blockNodes(html);
  const fresh = now.querySelector("code");
  const shown = place.querySelector("code");
  if (!fresh || !shown || place.querySelector(".code-lang")?.textContent !== now.querySelector(".code-lang")?.textContent) return false;
  shown.replaceChildren(...fresh.childNodes);
  return true;
}
