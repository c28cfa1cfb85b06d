// Small pictures: shapes of states, the scale of a leak, and a line that shows where it went.

import { mark, put, svg } from "./dom.js";
import { fixed, known, limit, measure } from "./format.js";

const SHAPES = {
  play: "M4 2.5v11l9-5.5z",
  bars: "M4 3h3v10H4zM9 3h3v10H9z",
  square: "M3.5 3.5h9v9h-9z",
  glass: "M4 2h8v2.4L9.2 8 12 11.6V14H4v-2.4L6.8 8 4 4.4z",
  check: "M3 8.6l3.3 3.4L13 4.6",
  cross: "M4 4l8 8M12 4l-8 8",
  query: "M5.4 6a2.6 2.6 0 1 1 3.9 2.2c-.9.5-1.3.9-1.3 1.8M8 12.6v.4",
  grid: "M3 3h4v4H3zM9 3h4v4H9zM3 9h4v4H3zM9 9h4v4H9z",
};
const DRAWN = ["check", "cross", "query"];

/** A shape of 16 by 16 that stands beside a word. */
export function shape(name) {
  const path = svg("path", { d: SHAPES[name] ?? SHAPES.query });
  return svg("svg", { class: DRAWN.includes(name) ? "shape drawn" : "shape", viewBox: "0 0 16 16", "aria-hidden": "true" }, path);
}

const at = (share) => `${(100 * Math.min(Math.max(share, 0), 1)).toFixed(2)}%`;

function placed(name) {
  const { chance } = measure(name);
  return (value) => (value - chance) / (1 - chance);
}

/** The scale from "nothing is learnt" to "everything is known", with the worst attack, its interval and the limit. */
export function scale(card, { height = 22, ends = false } = {}) {
  const picture = svg("svg", { class: "scale", width: "100%", height: height + (ends ? 20 : 0), role: "img" });
  picture.draw = (now) => drawScale(picture, now, height, ends);
  picture.draw(card);
  return picture;
}

function drawScale(picture, card, height, ends) {
  const key = JSON.stringify([card.worst, card.limit, card.measure]);
  if (picture.key === key) return;
  picture.key = key;
  const place = placed(card.measure);
  const middle = height / 2;
  const parts = [svg("line", { class: "axis", x1: "0%", x2: "100%", y1: middle, y2: middle })];
  if (known(card.limit)) {
    const left = at(place(card.limit));
    parts.push(svg("rect", { class: "beyond", x: left, y: 2, width: at(1 - place(card.limit)), height: height - 4 }));
    parts.push(svg("line", { class: "limit", x1: left, x2: left, y1: 0, y2: height }));
  }
  if (card.worst) parts.push(...worstMarks(card.worst, place, middle));
  if (ends) parts.push(...endWords(card, place, height));
  mark(picture, "aria-label", scaleWords(card));
  put(picture, parts);
}

function worstMarks(worst, place, middle) {
  const parts = [];
  if (known(worst.low) && known(worst.high) && worst.high > worst.low) {
    const [from, to] = [at(place(worst.low)), at(place(worst.high))];
    parts.push(svg("line", { class: "range", x1: from, x2: to, y1: middle, y2: middle }));
  }
  parts.push(svg("circle", { class: "dot", cx: at(place(worst.value)), cy: middle, r: 5 }));
  return parts;
}

function endWords(card, place, height) {
  const { lowest, highest } = measure(card.measure);
  const parts = [
    svg("text", { x: "0%", y: height + 14 }, lowest),
    svg("text", { x: "100%", y: height + 14, "text-anchor": "end" }, highest),
  ];
  if (known(card.limit)) {
    const left = place(card.limit);
    if (left > 0.14 && left < 0.8) {
      parts.push(svg("text", { class: "limit", x: at(left), y: height + 14, "text-anchor": left < 0.3 ? "start" : "middle" }, `limit ${limit(card.limit)}`));
    }
  }
  return parts;
}

function scaleWords(card) {
  const { title, lowest, highest, chance } = measure(card.measure);
  const bound = known(card.limit) ? `, limit ${limit(card.limit)}` : "";
  const reached = card.worst ? `worst attack ${fixed(card.worst.value)}` : "no attack yet";
  return `${title} from ${chance} (${lowest}) to 1 (${highest}): ${reached}${bound}`;
}

/** The worst leak over the last looks, as a line without axes; the dashes are the limit. */
export function spark(card) {
  const picture = svg("svg", { class: "spark", viewBox: "0 0 100 28", preserveAspectRatio: "none", "aria-hidden": "true" });
  picture.draw = (now) => drawSpark(picture, now);
  picture.draw(card);
  return picture;
}

function drawSpark(picture, card) {
  const key = JSON.stringify([card.spark, card.limit]);
  if (picture.key === key) return;
  picture.key = key;
  const points = (card.spark?.x ?? []).map((x, index) => [x, card.spark.y[index]]).filter(([, y]) => known(y));
  if (points.length < 2) {
    put(picture);
    return;
  }
  const values = points.map(([, y]) => y).concat(known(card.limit) ? [card.limit] : []);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const place = ([x, y]) => {
    const across = last > first ? (x - first) / (last - first) : 0;
    return `${(1 + 98 * across).toFixed(1)} ${(25 - 22 * (high > low ? (y - low) / (high - low) : 0.5)).toFixed(1)}`;
  };
  const parts = [svg("path", { class: "way", d: `M${points.map(place).join("L")}` })];
  if (known(card.limit)) {
    parts.unshift(svg("path", { class: "limit", d: `M${place([first, card.limit])}L${place([last, card.limit])}` }));
  }
  put(picture, parts);
}
