import { BlockSplitter, type Block } from "./blocks";
import { blockHtml, blockNodes, openCode } from "./render";

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
      const place = this.place(at);
      const growing = openCode(block.token);
      if (growing && growCode(place, growing)) {
        this.html[at] = "";
        continue;
      }
      const html = blockHtml(block.token);
      if (this.html[at] === html) continue;
      place.replaceChildren(blockNodes(html));
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
