// Shows one picture of another host, after a click, in a frame without an origin: the page around it may load none.
addEventListener("message", (event) => {
  if (event.source !== parent || event.data?.kind !== "draw") return;
  const image = document.createElement("img");
  image.alt = event.data.label;
  image.referrerPolicy = "no-referrer";
  image.style.cssText = "display:block;max-width:100%;border-radius:12px";
  image.onload = () => parent.postMessage({ kind: "drawn", height: Math.ceil(image.getBoundingClientRect().height) }, "*");
  image.onerror = () => parent.postMessage({ kind: "failed" }, "*");
  image.src = event.data.source;
  document.body.replaceChildren(image);
});
parent.postMessage({ kind: "ready" }, "*");
