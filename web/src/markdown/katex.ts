import katex from "katex";
import "katex/dist/katex.min.css";

const OPTIONS = { throwOnError: true, strict: "ignore", trust: false, maxSize: 20, maxExpand: 200 } as const;

/** Replaces a formula's source by its drawing; a formula that cannot be drawn stays as it was written. */
export function draw(formula: HTMLElement): void {
  const source = formula.textContent ?? "";
  const display = formula.classList.contains("display");
  const place = document.createElement("span");
  place.className = display ? "formula display" : "formula";
  place.dir = "ltr";
  try {
    // Builds nodes one by one: no markup of ours or of the source is parsed.
    katex.render(source, place, { ...OPTIONS, displayMode: display });
    formula.replaceWith(place);
  } catch {
    formula.classList.add("undrawn");
  }
}
