// The trade-off of a sweep: to the right a better model, upwards a worse leak. Each point is a link.

import { el, mark, put, svg } from "./dom.js";
import { fixed, known, short, spelled } from "./format.js";

const SHAPES = [
  "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
  "M-4.6-4.6h9.2v9.2h-9.2z",
  "M0-6L6 4.5H-6z",
  "M0-6.5L6 0L0 6.5L-6 0z",
  "M0 6L6-4.5H-6z",
  "M-5.5-2h3.5v-3.5h4v3.5h3.5v4h-3.5v3.5h-4v-3.5h-3.5z",
];
const COLOURS = ["s1", "s2", "s3", "s4", "s5", "ink"];
const HEIGHT = 460;
const PAD = { left: 52, right: 18, top: 14, bottom: 46 };

/** The shape and colour of a protection, by its place among all. */
export function look(index) {
  return { path: SHAPES[index % SHAPES.length], colour: COLOURS[index % COLOURS.length] };
}

/** The points that no other beats in both: from the least leak on, each with a better model than all before. */
export function front(points) {
  const able = points.filter((one) => known(one.leak) && known(one.utility)).sort((a, b) => a.leak - b.leak || b.utility - a.utility);
  let best = -Infinity;
  return able.filter((one) => one.utility > best && ((best = one.utility), true));
}

/** Round numbers between two ends. */
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9; at += step) found.push(Number(at.toFixed(10)));
  return found;
}

function span(values, floor) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const air = (high - low || 0.02) * 0.06;
  return [known(floor) ? Math.min(floor, low) : low - air, high + air];
}

/** A picture that `draw(detail, hidden)` fills; points are links of the class "point". */
export function scatter(address) {
  const picture = svg("svg", { class: "scatter", width: "100%", height: HEIGHT, role: "group", "aria-label": "Trade-off: each point is a setting" });
  const place = el("div", { class: "scatter-place" }, picture);
  let last = null;
  const draw = (detail, hidden) => {
    last = [detail, hidden];
    const width = place.clientWidth || 600;
    const focused = picture.contains(document.activeElement) ? document.activeElement.dataset.replica : null;
    put(picture, content(detail, hidden, width, address));
    if (focused) picture.querySelector(`[data-replica="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  };
  const sizes = new ResizeObserver(() => last && draw(...last));
  sizes.observe(place);
  return { node: place, draw, close: () => sizes.disconnect() };
}

function content(detail, hidden, width, address) {
  const points = detail.points.filter((one) => known(one.leak) && known(one.utility) && !hidden.has(one.protection));
  if (!points.length) return [svg("text", { x: 20, y: 40 }, "No point to show.")];
  const xs = span(points.map((one) => one.utility), null);
  const ys = span(points.flatMap((one) => [one.leak, one.low, one.high]).filter(known), 0.5);
  ys[1] = Math.min(ys[1], 1.02);
  const x = (value) => PAD.left + ((value - xs[0]) / (xs[1] - xs[0])) * (width - PAD.left - PAD.right);
  const y = (value) => HEIGHT - PAD.bottom - ((value - ys[0]) / (ys[1] - ys[0])) * (HEIGHT - PAD.top - PAD.bottom);
  const names = [...new Set(detail.points.map((one) => one.protection))];
  const best = front(points);
  return [
    svg("g", { "aria-hidden": "true" }, axes(xs, ys, x, y, width, points[0].utility_name)),
    svg("path", { class: "front", d: `M${best.map((one) => `${x(one.utility).toFixed(1)} ${y(one.leak).toFixed(1)}`).join("L")}` }),
    ...points.map((one) => point(one, look(names.indexOf(one.protection)), x, y, best.indexOf(one), address)),
  ];
}

function axes(xs, ys, x, y, width, name) {
  const bottom = HEIGHT - PAD.bottom;
  const parts = [];
  for (const tick of ticks(...xs, Math.max(2, Math.floor(width / 110)))) {
    parts.push(svg("line", { x1: x(tick), x2: x(tick), y1: PAD.top, y2: bottom }));
    parts.push(svg("text", { x: x(tick), y: bottom + 18, "text-anchor": "middle" }, short(tick)));
  }
  for (const tick of ticks(...ys, 6)) {
    parts.push(svg("line", { x1: PAD.left, x2: width - PAD.right, y1: y(tick), y2: y(tick) }));
    parts.push(svg("text", { x: PAD.left - 8, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  parts.push(svg("text", { class: "what", x: width - PAD.right, y: bottom + 38, "text-anchor": "end" }, `${spelled(name)}: better →`));
  parts.push(svg("text", { class: "what", x: PAD.left + 6, y: PAD.top + 12 }, "↑ leak AUC of the worst attack"));
  return parts;
}

/** What a point says. */
export function words(one) {
  const range = known(one.low) && known(one.high) && one.high > one.low ? ` (${fixed(one.low)} to ${fixed(one.high)})` : "";
  return `${one.label}${known(one.seed) ? `, seed ${one.seed}` : ""}: leak ${fixed(one.leak)}${range} by ${one.worst_attack ?? "no attack"}, ${spelled(one.utility_name)} ${fixed(one.utility)}`;
}

/** A point as a link; the first of the front is where the Tab key enters, arrows lead on from there. */
function point(one, { path, colour }, x, y, place, address) {
  const [left, top] = [x(one.utility), y(one.leak)];
  const parts = [];
  if (known(one.low) && known(one.high)) {
    parts.push(svg("line", { class: `whisker ${colour}`, x1: left, x2: left, y1: y(Math.max(one.low, 0.5)), y2: y(Math.min(one.high, 1)) }));
  }
  parts.push(svg("path", { class: "target", d: "M-13-13h26v26h-26z", transform: `translate(${left} ${top})` }));
  parts.push(svg("path", { class: `shape ${colour}`, d: path, transform: `translate(${left} ${top})` }));
  const link = svg("a", { class: place < 0 ? "point" : "point best", href: address(one), "data-replica": one.replica, tabindex: place ? "-1" : "0" }, svg("title", {}, words(one)), parts);
  mark(link, "aria-label", words(one));
  return link;
}
