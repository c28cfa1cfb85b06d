// Elements, made without a line of HTML: what a run says is text and stays text.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** An element with attributes, listeners (`onclick`) and children; strings become text. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for pictures. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Set a text only where it changed, so that nothing flickers and no selection is lost. */
export function say(node, words) {
  const text = words === null || words === undefined ? "" : String(words);
  if (node.textContent !== text) node.textContent = text;
  return node;
}

/** Set or take off an attribute, only where it changed. */
export function mark(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/** Put new children in the place of the old ones. */
export function put(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const REACHED = "a[href], button, input, .scroll"; // by the Tab key

/** Put new children in the place of the old ones; the focus stays on what has its place, and what was scrolled, too. */
export function remake(node, make) {
  const focused = [...node.querySelectorAll(REACHED)].indexOf(document.activeElement);
  const { scrollLeft, scrollTop } = node.querySelector(".scroll") ?? {};
  put(node, make());
  node.querySelector(".scroll")?.scrollTo(scrollLeft ?? 0, scrollTop ?? 0);
  if (focused >= 0) node.querySelectorAll(REACHED)[focused]?.focus({ preventScroll: true });
}

/** Make children anew only where what they show is another thing. */
export function renew(node, shown, make) {
  const key = JSON.stringify(shown);
  if (node.shown === key) return;
  node.shown = key;
  remake(node, make);
}

/**
 * Keep one child for each item, in the items' order. Children that stay are updated in place and are moved only where
 * they must be; the focus stays where it was.
 */
export function keyed(parent, items, key, make, update) {
  const had = parent.kept ?? new Map();
  const kept = new Map();
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  let place = parent.firstElementChild;
  for (const item of items) {
    const id = key(item);
    const node = had.get(id) ?? make(item);
    had.delete(id);
    kept.set(id, node);
    update(node, item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const node of had.values()) node.remove();
  parent.kept = kept;
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

/** A part of a page with a heading. */
export function section(id, title, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
}

/** A table that scrolls on its own where it is wider than its place; only there does the Tab key stop at it. */
export function scrolled(label, table) {
  mark(table, "aria-label", label);
  const place = el("div", { class: "scroll", role: "group", "aria-label": label, tabindex: "0" }, table);
  const sizes = new ResizeObserver(() => mark(place, "tabindex", place.scrollWidth > place.clientWidth || place.scrollHeight > place.clientHeight ? "0" : null));
  sizes.observe(place);
  sizes.observe(table);
  return place;
}

/** Words of ours in which backquotes mark what is typed. */
export function coded(words) {
  return words.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));
}

/** Words where there is nothing to show. */
export function empty(words) {
  return el("p", { class: "empty" }, coded(words));
}
