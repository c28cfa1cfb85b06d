// How long gradients are, by class, as they move over training: before the protection and as they are sent.

import { Chart } from "./chart.js";
import { el, empty, mark, put, say, svg } from "./dom.js";
import { count, known, short } from "./format.js";

const WHICH = [
  ["clean", "Before the protection", "nobody else sees these"],
  ["sent", "As they are sent", "this is what the other side sees"],
];
const CLASSES = [
  ["class 0", "s1"],
  ["class 1", "s4"],
];
const SHARES = [0.1, 0.5, 0.9];
const PLAY = 120; // milliseconds from step to step

/** Norms below which given shares of a class lie, from its histogram over bins of equal width in the logarithm. */
function quantiles(histogram, which) {
  const counts = histogram?.counts[which] ?? [];
  const all = counts.reduce((sum, one) => sum + one, 0);
  if (!all) return SHARES.map(() => null);
  const [low, high] = [Math.log(histogram.low), Math.log(histogram.high)];
  const width = (high - low) / counts.length;
  return SHARES.map((share) => {
    let before = 0;
    for (let bin = 0; bin < counts.length; bin++) {
      if (before + counts[bin] >= share * all && counts[bin]) {
        return Math.exp(low + width * (bin + (share * all - before) / counts[bin]));
      }
      before += counts[bin];
    }
    return histogram.high;
  });
}

function curves(norms, which) {
  return CLASSES.map(([name, colour], index) => {
    const found = norms.steps.map((step, at) => [step, quantiles(norms[which][at], index)]).filter(([, one]) => known(one[0]));
    const part = (number) => found.map(([, one]) => one[number]);
    return { name, colour, band: true, x: found.map(([step]) => step), y: part(1), low: part(0), high: part(2) };
  });
}

/** How far the classes' medians lie apart at a look, as a factor. */
function apart(histogram) {
  const [a, b] = [quantiles(histogram, 0)[1], quantiles(histogram, 1)[1]];
  return known(a) && known(b) ? Math.max(a / b, b / a) : null;
}

/** The part of a run's page about norms. */
export class NormsView {
  constructor() {
    this.at = null; // a place among the steps; null follows the last one
    this.charts = new Map(WHICH.map(([which, title]) => [which, new Chart({ id: `norms-${which}`, title, log: true, sync: "norms", height: 210, format: short })]));
    this.slider = el("input", { type: "range", min: "0", step: "1", id: "norm-step", "aria-label": "Step whose norms are shown" });
    this.words = el("output", { class: "told", for: "norm-step", "aria-live": "off" });
    this.play = el("button", { type: "button", class: "quiet", id: "norm-play" }, "Play");
    this.bars = new Map(WHICH.map(([which]) => [which, svg("svg", { class: "histogram", height: 120, width: "100%", role: "img" })]));
    const figures = WHICH.map(([which, title, whose]) => el("div", { class: "one" }, this.charts.get(which).node, el("p", { class: "told" }, `At this step, ${whose}.`), this.bars.get(which)));
    this.full = el("div", {}, el("div", { class: "charts two" }, figures), el("p", { class: "player" }, this.play, this.slider, this.words));
    this.nothing = el("div", {});
    this.node = el("div", {}, this.nothing, this.full);
    this.slider.addEventListener("input", () => this.pick(Number(this.slider.value)));
    this.play.addEventListener("click", () => (this.timer ? this.halt() : this.start()));
  }

  update(detail) {
    this.norms = detail.norms;
    const some = Boolean(detail.norms?.steps?.length && detail.norms.sent?.length);
    this.full.hidden = !some;
    put(this.nothing, some ? null : empty(why(detail)));
    if (!some) return this.halt();
    for (const [which] of WHICH) {
      const shown = curves(this.norms, which);
      this.charts.get(which).update(shown, { told: medianWords(this.norms, which) });
    }
    mark(this.slider, "max", this.norms.steps.length - 1);
    this.pick(this.at === null ? null : Math.min(this.at, this.norms.steps.length - 1));
  }

  pick(place) {
    const last = this.norms.steps.length - 1;
    this.at = place === last ? null : place;
    const index = place ?? last;
    this.slider.value = index;
    const gap = apart(this.norms.sent[index]);
    say(this.words, `Step ${count(this.norms.steps[index])}${this.at === null ? " (the last)" : ""}${known(gap) ? `: medians of what is sent differ ${gap.toFixed(2)}-fold` : ""}`);
    mark(this.slider, "aria-valuetext", this.words.textContent);
    for (const [which] of WHICH) histogram(this.bars.get(which), this.norms, which, index);
  }

  start() {
    say(this.play, "Pause");
    if (this.at === null) this.pick(0);
    this.timer = setInterval(() => {
      const next = (this.at ?? this.norms.steps.length - 1) + 1;
      if (next >= this.norms.steps.length) this.halt();
      else this.pick(next);
    }, PLAY);
  }

  halt() {
    clearInterval(this.timer);
    this.timer = null;
    say(this.play, "Play");
  }

  close() {
    this.halt();
    for (const chart of this.charts.values()) chart.close();
  }
}

function why(detail) {
  if (detail.role === "features") return "Norms by class are for the label party alone: this party has no labels, so it can't tell the classes apart.";
  return "No norms yet: each look notes them by class, where labels have two.";
}

function medianWords(norms, which) {
  const gap = apart(norms[which].at(-1));
  const lies = "The line is the median of a class, its band holds 8 in 10 of its rows.";
  return known(gap) ? `${lies} At the last look the medians differ ${gap.toFixed(2)}-fold.` : lies;
}

/** Both classes at one step, as shares of each class, on the axis of all steps. */
function histogram(picture, norms, which, index) {
  const one = norms[which][index];
  if (!one) return void put(picture);
  const some = norms[which].filter(Boolean);
  const lowest = Math.log(Math.min(...some.map((each) => each.low)));
  const highest = Math.log(Math.max(...some.map((each) => each.high)));
  const place = (log) => 100 * ((log - lowest) / (highest - lowest || 1));
  const [low, high] = [Math.log(one.low), Math.log(one.high)];
  const shares = one.counts.map((counts) => counts.map((value) => value / Math.max(counts.reduce((a, b) => a + b, 0), 1)));
  const top = Math.max(...shares.flat(), 1e-9);
  const paths = shares.map((found, number) => {
    const width = (high - low) / found.length;
    const corners = found.flatMap((share, bin) => [[low + bin * width, share], [low + (bin + 1) * width, share]]);
    const way = corners.map(([x, share]) => `${place(x).toFixed(2)} ${(100 - (96 * share) / top).toFixed(2)}`);
    const d = `M${place(low).toFixed(2)} 100L${way.join("L")}L${place(high).toFixed(2)} 100`;
    return svg("path", { class: `area ${CLASSES[number][1]}`, d, "vector-effect": "non-scaling-stroke" });
  });
  const inner = svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", width: "100%", height: 96, y: 2 }, paths);
  const words = [[0, "start", lowest], [50, "middle", (lowest + highest) / 2], [100, "end", highest]];
  const ends = words.map(([x, anchor, log]) => svg("text", { x: `${x}%`, y: 114, "text-anchor": anchor }, short(Number(Math.exp(log).toPrecision(2)))));
  mark(picture, "aria-label", `Norms at step ${norms.steps[index]}, ${CLASSES.map(([name], number) => `${name}: median ${short(quantiles(one, number)[1])}`).join(", ")}`);
  put(picture, svg("line", { class: "axis", x1: "0", x2: "100%", y1: 98, y2: 98 }), inner, ends);
}
