// A chart: uPlot with our colours, a key in words, a table, intervals, the limit and what was decided.

import { colour, onTheme } from "./colours.js";
import { coded, el, mark, put, say } from "./dom.js";
import { brief, count, known, short, times } from "./format.js";
import * as layers from "./layers.js";
import { closest, legend, table, tableToggle } from "./legend.js";

const HEIGHT = 250;
const COLOURS = ["s1", "s2", "s3", "s4", "s5"];
const DASHES = { s1: [], s2: [8, 3], s3: [2, 3], s4: [9, 3, 2, 3], s5: [4, 2] };
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif';
const LOG = { splits: (u, axis, low, high) => decades(low, high), filter: (u, splits) => splits };

/**
 * A chart in a figure (`node`). Give it data with `update`; curves may come and go.
 *
 * Options: id, title, about (words under the title), across ("step" or "time"), format (of a value), floor and ceiling
 * (that the y axis does not pass), whole (y has whole numbers), log, sync (charts with one key share a cursor), zoom(first, last) or zoom(null).
 */
export class Chart {
  constructor(options) {
    this.options = { format: short, across: "step", height: HEIGHT, ...options };
    this.curves = [];
    this.extra = {};
    this.window = [0, 1];
    this.drawn = null;
    this.hidden = new Set();
    this.colours = new Map();
    this.key = legend((curve) => this.toggle(curve));
    this.table = tableToggle(() => table(options.title, this.curves, { across: options.across ?? "step", x: (x) => this.across(x), y: this.options.format }));
    this.summary = el("p", { class: "told", id: `${options.id}-told` });
    this.heard = el("p", { class: "unseen", "aria-live": "polite" });
    this.plot = el("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `${options.title}, chart. Arrow keys read it, plus and minus zoom.`, "aria-describedby": `${options.id}-told` });
    this.nothing = el("p", { class: "empty" });
    const head = el("figcaption", {}, el("h3", {}, options.title), this.table.button);
    this.node = el("figure", { class: "chart", id: options.id }, head, this.summary, this.plot, this.nothing, this.key.node, this.table.place, this.heard);
    this.node.chart = this;
    this.plot.addEventListener("keydown", (event) => this.press(event));
    this.stop = onTheme(() => this.drawn?.redraw(false, true));
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this.plot);
  }

  /**
   * Show other data. curves: [{name, x, y, low, high, band, looks, points, gaps, colour}]; extra: {told, nothing, window,
   * limits, marks, shades}.
   */
  update(curves, extra = {}) {
    const some = curves.filter((curve) => curve.x.length);
    this.paint(some);
    this.extra = extra;
    this.curves = some;
    const all = some.flatMap((curve) => [curve.x[0], curve.x.at(-1)]);
    this.window = extra.window ?? widened(Math.min(...all), Math.max(...all));
    say(this.summary, extra.told);
    put(this.nothing, coded(extra.nothing ?? "Nothing yet."));
    this.nothing.hidden = some.length > 0;
    this.plot.hidden = this.key.node.hidden = this.table.button.hidden = this.summary.hidden = !some.length;
    this.key.update(this.ranked());
    this.key.values(null, this.options.format);
    this.draw();
    this.table.draw();
  }

  paint(curves) {
    const unseen = curves.filter((curve) => !this.colours.has(curve.name));
    const highest = (curve) => curve.y.reduce((most, value) => (known(value) && value > most ? value : most), -Infinity);
    unseen.sort((a, b) => highest(b) - highest(a));
    for (const curve of unseen) {
      const free = COLOURS.find((one) => ![...this.colours.values()].includes(one));
      this.colours.set(curve.name, curve.colour ?? free ?? "rest");
    }
    for (const curve of curves) {
      curve.colour = this.colours.get(curve.name);
      curve.hidden = this.hidden.has(curve.name);
    }
  }

  draw() {
    if (!this.curves.length) return;
    const names = JSON.stringify(this.curves.map((curve) => [curve.name, curve.points]));
    const data = uPlot.join(this.curves.map((curve) => [curve.x, curve.y]));
    this.range = this.heights();
    if (this.drawn && this.names === names) {
      this.drawn.setData(data, false);
      this.drawn.batch(() => {
        this.drawn.setScale("x", { min: this.window[0], max: this.window[1] });
        this.drawn.redraw(true, true);
      });
      return;
    }
    this.drawn?.destroy();
    this.names = names;
    this.drawn = new uPlot(this.settings(), data, this.plot);
  }

  settings() {
    const { across, zoom, sync, log, height, whole } = this.options;
    const axis = { stroke: () => colour("soft"), font: FONT, grid: { stroke: () => colour("rule"), width: 1 }, ticks: { show: false } };
    const wide = (u, values) => (values ? 14 + 7 * Math.max(...values.map((value) => String(value ?? "").length)) : 40);
    return {
      width: Math.max(this.plot.clientWidth, 100),
      height,
      ...(across === "time" ? { padding: [null, 28, null, null] } : {}), // half of a time of day
      legend: { show: false },
      scales: {
        x: { time: across === "time", range: () => this.window },
        y: { distr: log ? 3 : 1, range: () => this.range },
      },
      axes: [
        { ...axis, size: 30, gap: 6, space: 70, values: (u, ticks) => (across === "time" ? times(ticks) : ticks.map((tick) => (Number.isInteger(tick) ? count(tick) : ""))) },
        { ...axis, size: wide, gap: 4, ...(whole ? { incrs: [1, 2, 5, 10, 20, 50, 100] } : {}), ...(log ? LOG : {}), values: (u, ticks) => ticks.map((tick) => (tick === null ? "" : short(tick))) },
      ],
      series: [{}, ...this.curves.map((curve) => this.style(curve))],
      cursor: {
        x: true, y: false,
        points: { size: 7, fill: (u, index) => colour(this.curves[index - 1]?.colour ?? "soft") },
        drag: { x: Boolean(zoom), y: false, setScale: false },
        sync: sync ? { key: sync, scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } } : undefined,
        bind: { dblclick: () => () => zoom?.(null) },
      },
      hooks: { drawAxes: [(u) => this.under(u)], draw: [(u) => this.above(u)], setCursor: [(u) => this.read(u)], setSelect: [(u) => this.selected(u)] },
    };
  }

  style(curve) {
    const { points } = curve;
    const many = curve.x.length > 60;
    const rest = curve.colour === "rest";
    return {
      label: curve.name, show: !curve.hidden, spanGaps: !curve.gaps,
      stroke: () => colour(this.colours.get(curve.name)),
      width: rest || points ? 1 : 2,
      dash: points ? [1, 4] : DASHES[curve.colour],
      points: { show: points ? rest : !many, size: 5, fill: () => colour("paper") },
    };
  }

  under(u) {
    layers.shades(u, this.extra.shades ?? []);
    layers.marks(u, this.extra.marks ?? []);
    layers.looks(u, this.curves);
    layers.intervals(u, this.curves);
  }

  above(u) {
    layers.limits(u, this.extra.limits);
  }

  /** Lowest and highest of what is shown in the window, with the limit and some air. */
  heights() {
    const { floor, ceiling, log } = this.options;
    const values = [];
    for (const curve of this.curves) {
      if (curve.hidden) continue;
      for (let index = 0; index < curve.x.length; index++) {
        if (curve.x[index] < this.window[0] || curve.x[index] > this.window[1]) continue;
        const beside = curve.colour === "rest" ? [] : [curve.low?.[index], curve.high?.[index], curve.looks?.[index]];
        for (const value of [curve.y[index], ...beside]) if (known(value) && (!log || value > 0)) values.push(value);
      }
    }
    for (const value of this.extra.limits?.y ?? []) if (known(value)) values.push(value);
    const [low, high] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
    if (!known(low)) return [floor ?? (log ? 0.1 : 0), ceiling ?? 1];
    if (log) return [low / 1.3, high * 1.3];
    const air = (high - low || Math.abs(high) || 1) * 0.08;
    return [known(floor) ? Math.min(floor, low) : low - air, known(ceiling) ? Math.min(ceiling, high + air) : high + air];
  }

  toggle(curve) {
    if (!this.hidden.delete(curve.name)) this.hidden.add(curve.name);
    curve.hidden = this.hidden.has(curve.name);
    this.range = this.heights();
    this.drawn?.setSeries(this.curves.indexOf(curve) + 1, { show: !curve.hidden });
    this.key.update(this.ranked());
    this.table.draw();
  }

  /** The curves as the key has them: those with a colour of their own first. */
  ranked() {
    const place = (curve) => (curve.colour === "rest" ? COLOURS.length : COLOURS.indexOf(curve.colour));
    return [...this.curves].sort((a, b) => place(a) - place(b));
  }

  across(x) {
    return this.options.across === "time" ? brief(x) : count(Math.round(x));
  }

  read(u) {
    const at = u.cursor.left >= 0 && u.cursor.idx !== null ? u.data[0][u.cursor.idx] : null;
    this.key.values(at, this.options.format);
  }

  selected(u) {
    if (u.select.width < 4) return;
    const [from, to] = [u.select.left, u.select.left + u.select.width].map((left) => u.posToVal(left, "x"));
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.options.zoom?.(from, to);
  }

  press(event) {
    const u = this.drawn;
    if (!u || event.ctrlKey || event.metaKey || event.altKey) return;
    const [first, last] = this.window;
    const at = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : (first + last) / 2;
    const { zoom } = this.options;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      this.walk((event.key === "ArrowLeft" ? -1 : 1) * (event.shiftKey ? 10 : 1));
    } else if (zoom && (event.key === "+" || event.key === "=")) zoom(at - (at - first) / 2, at + (last - at) / 2);
    else if (zoom && event.key === "-") zoom(at - (at - first) * 2, at + (last - at) * 2);
    else if (zoom && event.key === "0") zoom(null);
    else return;
    event.preventDefault();
  }

  walk(steps) {
    const u = this.drawn;
    const xs = u.data[0];
    const from = u.cursor.left >= 0 && known(u.cursor.idx) ? u.cursor.idx : steps > 0 ? -1 : xs.length;
    const index = Math.min(Math.max(from + steps, 0), xs.length - 1);
    u.setCursor({ left: Math.min(Math.max(u.valToPos(xs[index], "x"), 0), u.over.clientWidth - 1), top: u.over.clientHeight / 2 });
    const values = this.curves.filter((curve) => !curve.hidden).map((curve) => `${curve.name} ${this.options.format(curve.y[closest(curve.x, xs[index])])}`);
    say(this.heard, `${this.options.across} ${this.across(xs[index])}: ${values.join(", ")}`);
  }

  resize() {
    const width = this.plot.clientWidth;
    if (this.drawn && width && width !== this.drawn.width) this.drawn.setSize({ width, height: this.options.height });
    mark(this.node, "data-width", width);
  }

  close() {
    this.stop();
    this.sizes.disconnect();
    this.drawn?.destroy();
  }
}

/** Round numbers between two ends of a logarithmic axis. */
function decades(low, high) {
  const found = [];
  const steps = high / low > 200 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const step of steps) found.push(Number(`${step}e${power}`));
  }
  return found.filter((one) => one >= low && one <= high);
}

function widened(low, high) {
  if (!known(low)) return [0, 1];
  return low === high ? [low - 1, high + 1] : [low, high];
}
