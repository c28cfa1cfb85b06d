// Colours as the theme has them now: canvases need them resolved.

const seen = new Map();
let probe = null;

/** The colour of a CSS variable in the current theme. */
export function colour(name) {
  if (!seen.has(name)) {
    if (!probe) {
      probe = document.createElement("span");
      probe.hidden = true;
      document.body.append(probe);
    }
    probe.style.color = `var(--${name})`;
    seen.set(name, getComputedStyle(probe).color);
  }
  return seen.get(name);
}

/** The same colour, let through. */
export function faint(name, share) {
  const parts = colour(name).match(/[\d.]+/g) ?? ["128", "128", "128"];
  return `rgba(${parts.slice(0, 3).join(", ")}, ${share})`;
}

const listeners = new Set();

/** Be told when the theme changes; returns how to stop. */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  seen.clear();
  for (const listener of listeners) listener();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);

const ORDER = [null, "light", "dark"];

/** The theme that was asked for: "light", "dark", or null for the system's. */
export function theme() {
  return document.documentElement.dataset.theme ?? null;
}

/** Go to the next theme and keep it. */
export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length];
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  try {
    if (next) localStorage.setItem("tacit.theme", next);
    else localStorage.removeItem("tacit.theme");
  } catch {
    // a browser that keeps nothing forgets it when the page is closed
  }
  changed();
  return next;
}
