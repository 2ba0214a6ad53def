// Shows one picture of another host, after a click, in a frame without an origin: the page around it may load none.
addEventListener("message", (event) => {
  if (event.source !== parent) return;
  if (event.data?.kind === "zoom") zoom(event.data.on);
  if (event.data?.kind !== "draw") return;
  const image = document.createElement("img");
  image.alt = event.data.label;
  image.referrerPolicy = "no-referrer";
  image.style.cssText = "display:block;max-width:100%;border-radius:12px;cursor:zoom-in";
  image.onclick = () => parent.postMessage({ kind: "pressed" }, "*");
  image.onload = () => parent.postMessage({ kind: "drawn", height: Math.ceil(image.getBoundingClientRect().height) }, "*");
  image.onerror = () => parent.postMessage({ kind: "failed" }, "*");
  image.src = event.data.source;
  document.body.replaceChildren(image);
});

/** On the whole screen the picture stands in its middle. */
function zoom(on) {
  const image = document.querySelector("img");
  if (!image) return;
  document.body.style.cssText = on ? "display:grid;place-items:center;height:100vh" : "";
  image.style.maxHeight = on ? "100vh" : "";
  image.style.cursor = on ? "zoom-out" : "zoom-in";
}

parent.postMessage({ kind: "ready" }, "*");
