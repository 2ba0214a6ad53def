// Before the first paint: the chosen theme and contrast, so that nothing flashes, and whether this browser is signed in.
try {
  const chosen = JSON.parse(localStorage.getItem("antiphon.settings") || "{}");
  const root = document.documentElement;
  if (chosen.theme === "light" || chosen.theme === "dark") root.dataset.theme = chosen.theme;
  if (chosen.contrast === "more") root.dataset.contrast = "more";
  if (localStorage.getItem("antiphon.known")) root.dataset.known = localStorage.getItem("antiphon.sidebar") === "closed" ? "closed" : "open";
} catch {
  // A forbidden storage means the system's own colours.
}
