// Draws one diagram in a frame without an origin, a network or the right to any inline style: what the library writes as style
// elements and attributes becomes rules and properties here.
const sheets = new Map();

function adopt(style) {
  if (style.textContent === "" || sheets.has(style.textContent)) return;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(style.textContent.replace(/@import[^;]*;/g, ""));
  sheets.set(style.textContent, sheet);
  document.adoptedStyleSheets = [...sheets.values()];
}

new MutationObserver(() => document.querySelectorAll("style").forEach(adopt)).observe(document.documentElement, { childList: true, subtree: true, characterData: true });

function show(text) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
  const svg = document.importNode(parsed.documentElement, true);
  for (const style of svg.querySelectorAll("style")) {
    adopt(style);
    style.remove();
  }
  for (const element of [svg, ...svg.querySelectorAll("[style]")]) {
    const value = element.getAttribute("style");
    element.removeAttribute("style");
    if (value) element.style.cssText = value;
  }
  const main = document.createElement("main");
  main.append(svg);
  document.body.replaceChildren(main);
  return main;
}

async function draw({ source, dark }) {
  const library = globalThis.mermaid;
  library.initialize({ startOnLoad: false, securityLevel: "strict", theme: dark ? "dark" : "neutral", htmlLabels: false, flowchart: { htmlLabels: false }, fontFamily: "system-ui, sans-serif", themeVariables: { edgeLabelBackground: dark ? "#171614" : "#f8f7f4" }, suppressErrorRendering: true });
  document.documentElement.style.colorScheme = dark ? "dark" : "light";
  await library.parse(source);
  const { svg } = await library.render("diagram", source);
  const main = show(svg);
  parent.postMessage({ kind: "drawn", height: Math.ceil(main.getBoundingClientRect().height) }, "*");
}

addEventListener("message", (event) => {
  if (event.source !== parent || event.data?.kind !== "draw") return;
  draw(event.data).catch(() => parent.postMessage({ kind: "failed" }, "*"));
});
parent.postMessage({ kind: "ready" }, "*");
