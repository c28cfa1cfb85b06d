// What belongs to a chart in words: its key, whose entries switch curves off and on, and its table.

import { el, keyed, mark, remake, say, scrolled, svg } from "./dom.js";
import { known } from "./format.js";

/** Where in a rising list of x a value would stand closest. */
export function closest(xs, x) {
  let low = 0;
  let high = xs.length - 1;
  if (high < 0) return -1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}

/** The key of a chart: a button for each curve. `toggle` gets a curve that was clicked. */
export function legend(toggle) {
  const list = el("ul", { class: "legend" });
  const make = () => {
    const line = svg("line", { x1: 0, x2: 22, y1: 5, y2: 5 });
    const name = el("span", { class: "name" });
    const value = el("span", { class: "v" });
    const button = el("button", { type: "button" }, svg("svg", { width: 22, height: 10, "aria-hidden": "true" }, line), name, value);
    const item = el("li", {}, button);
    item.parts = { line, name, value, button };
    button.addEventListener("click", () => toggle(item.curve));
    return item;
  };
  const update = (item, curve) => {
    item.curve = curve;
    say(item.parts.name, curve.title ?? curve.name);
    mark(item.parts.button, "aria-pressed", curve.hidden ? "false" : "true");
    mark(item.parts.line, "class", `swatch ${curve.colour}`);
  };
  return {
    node: list,
    update: (curves) => keyed(list, curves, (curve) => curve.name, make, update),
    values: (at, format) => {
      for (const item of list.children) {
        const { x, y } = item.curve;
        const index = at === null ? y.findLastIndex(known) : closest(x, at);
        say(item.parts.value, index < 0 ? "" : format(y[index]));
      }
    },
  };
}

/** Some of the points of all curves as a table, for those who can't see the picture or want the numbers. */
export function table(caption, curves, { across, x, y }) {
  const shown = curves.filter((curve) => !curve.hidden);
  const all = [...new Set(shown.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  const every = Math.max(1, Math.ceil(all.length / 40));
  const picked = all.filter((_, index) => index % every === 0 || index === all.length - 1);
  const head = el("tr", {}, el("th", { scope: "col", class: "n" }, across), shown.map((curve) => el("th", { scope: "col", class: "n" }, curve.title ?? curve.name)));
  const rows = picked.map((at) => {
    const cells = shown.map((curve) => {
      const index = closest(curve.x, at);
      const near = index >= 0 && Math.abs(curve.x[index] - at) <= (all.at(-1) - all[0]) / 80;
      return el("td", { class: "n" }, near ? y(curve.y[index]) : "");
    });
    return el("tr", {}, el("th", { scope: "row", class: "n" }, x(at)), cells);
  });
  const note = every > 1 ? `${caption}: every ${every}th of ${all.length} points` : caption;
  return scrolled(caption, el("table", { class: "tight" }, el("caption", {}, note), el("thead", {}, head), el("tbody", {}, rows)));
}

/** A button that shows the table of a chart and takes it away; `make` makes it from what is shown now. */
export function tableToggle(make) {
  const place = el("div", {});
  const button = el("button", { type: "button", class: "quiet", "aria-expanded": "false" }, "Show as table");
  const draw = () => {
    const open = button.getAttribute("aria-expanded") === "true";
    say(button, open ? "Hide the table" : "Show as table");
    remake(place, () => (open ? make() : null));
  };
  button.addEventListener("click", () => {
    mark(button, "aria-expanded", button.getAttribute("aria-expanded") === "true" ? "false" : "true");
    draw();
  });
  return { button, place, draw };
}
